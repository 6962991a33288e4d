"""Make a run's trainer in its folder: for a new run, or for one that resumes from its newest checkpoint."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from duetto import environments
from duetto.errors import UsageError
from duetto.learners.multi_seed import SeedGroup
from duetto.learners.runtime import start_jax
from duetto.runs.finetune import WarmStart
from duetto.runs.spec import RunSpec
from duetto.storage import signing
from duetto.storage.config import Config
from duetto.storage.run_folder import BEFORE, clear, folder_lock, free_folder
from duetto.training.components import Execution
from duetto.training.trainer import Trainer


def trainer_type(config: Config, environment: Any) -> type[Trainer]:
    """Return `DeviceTrainer`, which compiles the whole loop, for JAX with a JAX environment; else `Trainer`."""
    if config.run.backend != "jax" or not environments.is_device(environment):
        return Trainer
    start_jax(config.run.threads)  # else the environment starts it with a thread per core
    from duetto.training.device_trainer import DeviceTrainer  # imports JAX

    return DeviceTrainer


@contextmanager
def new_trainer(
    spec: RunSpec,
    config: Config,
    path: Path,
    place: Execution | None = None,
    group: SeedGroup | None = None,
) -> Iterator[Trainer]:
    """Yield the trainer of a new run, and close it afterwards. If the run cannot start, delete its new folder.

    Args:
        spec: The run.
        config: The spec's config.
        path: The folder.
        place: Creates the environments; None: in this process.
        group: The seeds that train side by side with this run; None: it trains alone.
    """
    made = False
    try:
        with folder_lock(path):
            config.save(path / "config.yaml")
            kind = trainer_type(config, spec.environment)
            with closing(kind(config, path, spec.environment, place, group)) as trainer:
                if config.began_from is not None:
                    WarmStart.from_dict(config.began_from).apply(trainer)
                if trainer.config != config:
                    trainer.config.save(path / "config.yaml")
                if path.name != spec.folder_name:
                    taken = path.with_name(spec.folder_name)
                    trainer.notices.append(
                        f"{taken} exists, so this run is in {path}. To continue that run: duetto resume {taken}"
                    )
                if trainer.config.lacks_signature:
                    trainer.notices.append(
                        f"No key can be made or read in {signing.key_path()}, so this run is not signed: resume, "
                        f"evaluate and video will need --trust. Correct this, or set {signing.KEY_FILE}."
                    )
                made = True
                yield trainer
    finally:
        if not made:  # after the lock's file is closed: on NFS, an open file keeps its folder
            clear(path)


def existing_trainer(
    config: Config,
    path: Path,
    environment: Any,
    place: Execution | None = None,
    accept_changes: bool = False,
    trusted: bool = False,
) -> Trainer:
    """Make the trainer of an existing run in `path`, restored from its last good checkpoint.

    Without a checkpoint, the run starts again at step 0, and its logs move to another folder. A
    fine-tuned run then loads its initial networks again.
    """
    with ExitStack() as opened:
        trainer = opened.enter_context(closing(trainer_type(config, environment)(config, path, environment, place)))
        if trainer.checkpoints.store.steps():
            loaded = trainer.checkpoints.store.load_latest()
            # The last vector step may exceed `steps`.
            if config.run.steps <= loaded.step - trainer.components.steps_at_once:
                raise UsageError(
                    f"{path} has made {loaded.step} steps already, more than {config.run.steps}: give more --steps."
                )
            trainer.resume(loaded, accept_changes)
        else:
            if source := config.began_from:
                config.check_trust("from", path, trusted)
                WarmStart.from_dict(source).apply(trainer)
            logs = trainer.checkpoints.logs
            if any(log.scan(log.path).rows for log in logs):
                aside = free_folder(path, BEFORE)
                for log in logs:
                    shutil.copy(log.path, aside)
                    log.cut_back(0)
                trainer.notices.append(
                    f"{path} has no checkpoint: the run starts at step 0 again. Its earlier logs are in {aside}."
                )
        opened.pop_all()
    return trainer
