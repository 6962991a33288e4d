"""Make a run's trainer in its folder: for a new run, or for one that resumes from its newest checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from duetto import environments, learners
from duetto.errors import UsageError
from duetto.runs.finetune import WarmStart
from duetto.runs.spec import RunSpec
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
def new_trainer(
    spec: RunSpec,
    config: Config,
    path: Path,
    place: Execution | None = None,
    build_learner: Callable[..., learners.Learner] = learners.build,
) -> Iterator[Trainer]:
    """Make the trainer of a new run in its new folder, which is deleted again if that fails.

    Args:
        spec: The run.
        config: The spec's config.
        path: The folder.
        place: Where environments run; None: in this process.
        build_learner: Makes the learner, as `learners.build`.
    """
    with ExitStack() as afterwards, FolderLock(path) as lock:
        try:
            config.save(path / "config.yaml")
            kind = trainer_type(config, spec.environment)
            trainer = kind(config, path, spec.environment, lock, place, build_learner)
            try:
                if spec.warm_start is not None:
                    began = spec.warm_start.begin(trainer).to_dict()
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


def existing_trainer(
    config: Config,
    path: Path,
    environment: Callable[[], Any],
    lock: FolderLock,
    place: Execution | None = None,
    restore: Callable[[Trainer], None] = lambda _: None,
) -> Trainer:
    """Make the trainer of an existing run in `path`, and let `restore` restore it from a checkpoint.

    Without a checkpoint, the run starts again: its logs move to another folder, and back if something fails.
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
        restore(trainer)
        undone.pop_all()
    if aside is not None:
        trainer.notices.append(
            f"{path} has no checkpoint: the run starts at step 0 again. What it had logged is in {aside}."
        )
    return trainer


def restore(trainer: Trainer, without_memory: bool, accept_changes: bool, trusted: bool) -> None:
    """Load the last good checkpoint, or without one the networks of the run that this one started from.

    Nothing on disk changes if it does not fit.
    """
    path, config = trainer.folder, trainer.config
    if not trainer.checkpoints.store.steps():
        if began := config.began_from:
            beginning = WarmStart.from_dict(began)
            config.check_trust("from", path, trusted)
            beginning.begin(trainer)
        return
    loaded = trainer.checkpoints.store.load_latest(memory=not without_memory)
    if config.run.steps <= loaded.step - trainer.components.steps_at_once:  # the last vector step may go beyond the end
        raise UsageError(
            f"{path} has made {loaded.step} steps already, more than {config.run.steps}: give more --steps."
        )
    trainer.resume(loaded, without_memory, accept_changes)
