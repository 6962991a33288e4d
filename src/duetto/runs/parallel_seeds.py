"""Runs of several seeds, trained side by side in this process: trainers whose learners are computed together.

Each trainer has its own environments, buffer, random numbers, logs and folder, so its results are those of a run of
that seed alone, up to rounding. If one has more to do, such as an evaluation, the others wait for it; if one ends or
fails, they continue without it.
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
    """Return the config of each seed's run; it names the others computed in one program with it."""
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
    """Train all seeds at once, each in a folder as `start` makes it.

    Args:
        spec: The runs; its seed is not used.
        seeds: The seeds, each once.
        callbacks: Called once for each seed.
        on_start: Gets all trainers before their first steps.

    Raises:
        UsageError: As `start`; or the algorithm has networks here that cannot be computed side by side.
        DuettoError: Some of the seeds failed; the others have made all their steps.
    """
    parent = Path(spec.runs_dir).absolute()  # as in `start`
    configs = planned_together(spec, seeds)
    if environments.is_instance(spec.environment):
        raise UsageError(
            "An environment that is made already is one; each seed needs its own. Pass its id, or a factory that makes "
            "a new one at each call."
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
                paths.append(path)  # only now: a run that cannot start has taken its folder away
                trainers.append(opened.enter_context(trainer))
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
    """Raise what seeds have raised: a DuettoError that lists them, or the first error of another kind."""
    for seed, error in failed.items():
        if not isinstance(error, DuettoError):
            error.add_note(f"This is of seed {seed}, one of {of}.")
            raise error
    if failed:
        listed = "\n".join(f"Seed {seed}: {error}" for seed, error in failed.items())
        raise DuettoError(f"{len(failed)} of {of} seeds failed.\n{listed}") from next(iter(failed.values()))
