"""Opening a run's trainer in its folder: for a new run, or for one that goes on from its newest checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from duetto import environments, learners
from duetto.errors import UsageError
from duetto.runs.finetune import WarmStart
from duetto.storage import signing
from duetto.storage.checkpoint import CheckpointStore
from duetto.storage.config import Config
from duetto.storage.lock import FolderLock
from duetto.storage.run_folder import BEFORE, clear, free_folder
from duetto.training.execution import Execution
from duetto.training.trainer import Trainer


def trainer_type(config: Config, environment: Any) -> type[Trainer]:
    """Return the class of the run's trainer: JAX trains in environments of arrays in one compiled program."""
    if config.run.backend != "jax" or not environments.is_device(environment):
        return Trainer
    from duetto.training.device_trainer import DeviceTrainer  # imports JAX

    return DeviceTrainer


@contextmanager
def begun(
    config: Config,
    path: Path,
    environment: Any,
    beginning: WarmStart | None = None,
    place: Execution | None = None,
    build_learner: Callable[..., learners.Learner] = learners.build,
) -> Iterator[Trainer]:
    """The trainer of a new run in its new folder, which is removed again if the trainer cannot be made."""
    with ExitStack() as afterwards, FolderLock(path) as lock:
        try:
            config.save(path / "config.yaml")
            trainer = trainer_type(config, environment)(config, path, environment, lock, place, build_learner)
            try:
                if beginning is not None:
                    began = beginning.begin(trainer).to_dict()
                    trainer.config = replace(trainer.config, began_from=began).signed()
                if trainer.config != config:
                    config = trainer.config
                    config.save(path / "config.yaml")
            except BaseException:
                trainer.close()
                raise
        except BaseException:
            # Once the lock's file is closed: on NFS an open one keeps its folder.
            afterwards.callback(clear, path)
            raise
        if config.lacks_signature:
            trainer.notices.append(
                f"No key can be made or read in {signing.key_path()}, so this run is not signed: resume, evaluate and "
                f"video will need --trust. Put that right, or set {signing.KEY_FILE}."
            )
        with closing(trainer):
            yield trainer


def reopened(
    config: Config,
    path: Path,
    environment: Callable[[], Any],
    lock: FolderLock,
    place: Execution | None = None,
    take_up: Callable[[Trainer], None] = lambda _: None,
) -> Trainer:
    """The trainer of an existing run in `path`; `take_up` restores it from a checkpoint.

    Without a checkpoint the run begins anew: what it had logged is set aside, not dropped, and is put back if something
    fails.
    """
    logs = (path / "metrics.jsonl", path / "evaluations.csv")
    logged = [file for file in logs if file.exists()]
    begins, aside = not CheckpointStore(path / "checkpoints").steps(), None
    with ExitStack() as undone:
        if begins and logged:
            aside = free_folder(path, BEFORE)
            undone.callback(aside.rmdir)
            for file in logged:
                undone.callback((aside / file.name).replace, file)
                file.rename(aside / file.name)
        elif begins:
            for file in logs:
                undone.callback(file.unlink, missing_ok=True)
        handed = environment()
        trainer = trainer_type(config, handed)(config, path, handed, lock, place)
        undone.callback(trainer.close)
        take_up(trainer)
        undone.pop_all()
    if aside is not None:
        trainer.notices.append(
            f"{path} has no checkpoint: the run begins at step 0 again. What it had logged is in {aside}."
        )
    return trainer


def take_up(trainer: Trainer, without_memory: bool, accept_changes: bool, trusted: bool) -> None:
    """Load the last good checkpoint, if there is one, or else what the run begins from; if it does not fit, nothing on
    disk is changed.
    """
    path, config = trainer.folder, trainer.config
    if not trainer.checkpoints.store.steps():
        if began := config.began_from:
            beginning = WarmStart.from_dict(began)
            config.check_trust("from", path, trusted)
            beginning.begin(trainer)
        return
    loaded = trainer.checkpoints.store.load_latest(memory=not without_memory)
    if config.run.steps <= loaded.step - trainer.steps_at_once:  # the last vector step may go beyond the end
        raise UsageError(
            f"{path} has made {loaded.step} steps already, more than {config.run.steps}: give more --steps."
        )
    trainer.resume(loaded, without_memory, accept_changes)
