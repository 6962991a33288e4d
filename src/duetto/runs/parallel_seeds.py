"""Train several seeds side by side in this process, with one computation for the updates of all learners.

The trainer of each seed has its own environments, buffer, random numbers, logs and folder. So up to rounding, its
results equal those of a run with this seed alone. While one trainer evaluates or writes a checkpoint, the others wait.
If a trainer ends or fails, the others continue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from duetto import environments
from duetto.errors import DuettoError, UsageError
from duetto.learners.multi_seed import SeedGroup
from duetto.runs.run import Run, run_of
from duetto.runs.spec import RunSpec, new_folder, run_name
from duetto.runs.trainer_setup import new_trainer
from duetto.storage.config import Config
from duetto.storage.run_folder import clear
from duetto.training.callbacks import AnyCallback
from duetto.training.signals import interruptible
from duetto.training.trainer import Trainer


def planned_together(spec: RunSpec, seeds: Sequence[int]) -> list[Config]:
    """Return the config of each seed's run, which also records the other seeds."""
    config = spec.config()
    return [
        replace(
            config, run=replace(config.run, seed=seed), other_seeds=tuple(other for other in seeds if other != seed)
        )
        for seed in seeds
    ]


def start_many(
    spec: RunSpec,
    seeds: Sequence[int],
    callbacks: Callable[[], Sequence[AnyCallback]] = list,
    on_start: Callable[[list[Trainer]], None] | None = None,
) -> list[Run]:
    """Train all seeds side by side, each in a new folder, and return their runs.

    Args:
        spec: The spec of all runs; the seed in its options is not used.
        seeds: The seeds, without duplicates.
        callbacks: A function that returns callbacks; it is called once for each seed.
        on_start: Gets all trainers before their first steps.

    Raises:
        UsageError: As in `start`; or the algorithm's networks cannot be computed side by side; or the environment is an
            object, but each seed needs its own.
        DuettoError: Some of the seeds failed. Errors of other classes are raised unchanged.
    """
    parent = Path(spec.runs_dir).absolute()  # as in `start`
    configs = planned_together(spec, seeds)
    if environments.is_instance(spec.environment):
        raise UsageError(
            "The environment is one object, but each seed needs its own. Pass an id, or a factory that makes a new "
            "environment at each call."
        )
    watching = [callbacks() for _ in configs]  # before anything is written
    group, paths, started = SeedGroup([config.run.seed for config in configs]), [], False
    try:
        with ExitStack() as opened:
            trainers: list[Trainer] = []
            for config in configs:
                seed = config.run.seed
                name = f"{spec.name}-s{seed}" if spec.name else run_name(spec.algorithm, spec.label, seed)
                path = new_folder(parent, name)
                named = replace(spec, name=name)
                trainer = new_trainer(named, config, path, group=group if len(configs) > 1 else None)
                trainers.append(opened.enter_context(trainer))
                paths.append(path)  # only now: `new_trainer` deletes the folder of a run that cannot start
                trainers[-1].diagnostics.before_run(trainers[-1].step)
            if on_start is not None:
                on_start(trainers)
            started = True

            def interrupt() -> None:
                for trainer in trainers:
                    trainer.stop()

            with interruptible(interrupt):
                raised = group.run([partial(_run, *pair) for pair in zip(trainers, watching, strict=True)])
    finally:
        if not started:  # a mistake in the call: nothing is left behind
            for path in paths:
                clear(path)
    _raise({config.run.seed: error for config, error in zip(configs, raised, strict=True) if error}, len(configs))
    return [run_of(spec, path, config) for path, config in zip(paths, configs, strict=True)]


def _run(trainer: Trainer, callbacks: Sequence[AnyCallback]) -> None:
    try:
        trainer.run(callbacks)
    except Exception as error:
        trainer.stop(f"Seed {trainer.config.run.seed} has failed, and the others continue without it: {error}")
        raise


def _raise(failed: dict[int, BaseException], of: int) -> None:
    """Raise the first error that is not a DuettoError; without such an error, raise a DuettoError that lists all."""
    for seed, error in failed.items():
        if not isinstance(error, DuettoError):
            error.add_note(f"This error is from seed {seed}, one of {of} seeds.")
            raise error
    if failed:
        listed = "\n".join(f"Seed {seed}: {error}" for seed, error in failed.items())
        raise DuettoError(f"{len(failed)} of {of} seeds failed.\n{listed}") from next(iter(failed.values()))
