"""Runs of several seeds, trained side by side in this process."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from duetto import environments, learners
from duetto.algorithms import Algorithm
from duetto.errors import DuettoError, UsageError, to_resume
from duetto.functional.rng import as_int
from duetto.learners.multi_seed import SeedGroup
from duetto.runs.argument_checks import check_videos
from duetto.runs.finetune import WarmStart
from duetto.runs.run import Run
from duetto.runs.run_config import new_folder, planned, run_name
from duetto.runs.trainer_setup import begun
from duetto.storage.config import Config, RunOptions
from duetto.storage.run_folder import clear
from duetto.storage.user_code import Origin
from duetto.training.callbacks import AnyCallback
from duetto.training.multi_seed import run_seeds
from duetto.training.trainer import Trainer


def planned_together(
    algorithm: Algorithm,
    environment: Any,
    options: RunOptions,
    seeds: Iterable[int],
    preset: str = "default",
    environment_options: dict[str, Any] | None = None,
    origin: Origin | None = None,
) -> list[Config]:
    """Plan a run for each seed, as `planned` does; each config names the others computed in one program with it."""
    each = _each(options, seeds)
    configs = [planned(algorithm, environment, one, preset, environment_options, origin) for one in each]
    besides = [tuple(other.seed for other in each if other is not one) for one in each]
    return [dataclasses.replace(config, beside=beside) for config, beside in zip(configs, besides, strict=True)]


def start_many(
    algorithm: Algorithm,
    environment: Any,
    options: RunOptions,
    seeds: Iterable[int],
    *,
    runs_dir: str | Path = "runs",
    name: str | None = None,
    preset: str = "default",
    environment_options: dict[str, Any] | None = None,
    callbacks: Callable[[], Sequence[AnyCallback]] = list,
    on_start: Callable[[list[Trainer]], None] | None = None,
    origin: Origin | None = None,
    beginning: WarmStart | None = None,
) -> list[Run]:
    """Train all seeds at once, each in a folder as `start` makes it. `callbacks` is called for each seed.

    Raises:
        UsageError: As `start`; or the algorithm has networks here that cannot be computed side by side.
        DuettoError: Some of the seeds failed; the others have made all their steps.
    """
    parent = Path(runs_dir).absolute()  # as in `start`
    configs = planned_together(algorithm, environment, options, seeds, preset, environment_options, origin)
    if environments.is_instance(environment):
        raise UsageError(
            "An environment that is made already is one; each seed needs its own. Pass its id, or a factory that makes "
            "a new one at each call."
        )
    watching = [callbacks() for _ in configs]  # before anything is written
    check_videos(watching[0], environment, configs[0])
    group, paths, began = SeedGroup([config.run.seed for config in configs]), [], False
    try:
        with ExitStack() as opened:
            trainers: list[Trainer] = []
            for config in configs:
                path = new_folder(parent, _name(name, config))
                build = group.learner if len(configs) > 1 else learners.build  # one alone is one alone
                trainer = begun(config, path, environment, beginning, build_learner=build)
                paths.append(path)  # only now: a run that cannot begin has taken its folder away
                trainers.append(opened.enter_context(trainer))
                trainers[-1].diagnostics.before_run(trainers[-1].step)
            if on_start is not None:
                on_start(trainers)
            began = True
            raised = run_seeds(group, trainers, watching)
    finally:
        if not began:  # a mistake in the call: nothing is left behind
            for path in paths:
                clear(path)
    _raise({config.run.seed: error for config, error in zip(configs, raised, strict=True) if error}, trainers)
    given = None if configs[0].remakeable else environment
    own = type(algorithm) if configs[0].origin else None
    return [Run(path, given, algorithm.custom_networks(), algorithm=own) for path in paths]


def _each(options: RunOptions, seeds: Iterable[int]) -> list[RunOptions]:
    numbers = _numbers(seeds)
    for seed in numbers:
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise UsageError(f"seeds has {seed!r}; they must be whole numbers, as in range(10).")
        if numbers.count(seed) > 1:
            raise UsageError(f"The seed {seed} is given twice. Two runs of it would be the same.")
    if not numbers:
        raise UsageError("seeds is empty. Give one at least.")
    return [dataclasses.replace(options, seed=seed) for seed in numbers]


def _numbers(seeds: Any) -> list[Any]:
    """The seeds of an iterable as a list. UsageError if it is none."""
    if isinstance(seeds, Iterable) and not isinstance(seeds, str | bytes) and getattr(seeds, "ndim", 1):
        return [as_int(seed) for seed in seeds]
    if isinstance(count := as_int(seeds), int) and count > 0:  # of `sweep` and `tune`, it is how many
        raise UsageError(
            f"seeds is {count}, which may be one seed or {count} of them: write seed={count}, or seeds=range({count}). "
            f"duetto.sweep(..., seeds={count}) trains so many in processes of their own."
        )
    raise UsageError(
        f"seeds is {seeds!r}; it must be whole numbers, as in range(10) or [0, 3, 9]. Text such as '0-9' is for "
        "duetto.sweep, which trains seeds in processes of their own."
    )


def _name(name: str | None, config: Config) -> str:
    seed = config.run.seed
    return run_name(config.algorithm, config.environment, seed) if name is None else f"{name}-s{seed}"


def _raise(failed: dict[int, BaseException], trainers: list[Trainer]) -> None:
    """Raise what seeds have raised: the error itself, if it is no DuettoError or all say the same; else one for all."""
    if not failed:
        return
    errors, of = list(failed.values()), len(trainers)
    others = _others([trainer for trainer in trainers if trainer.config.run.seed not in failed])
    for seed, error in failed.items():
        if not isinstance(error, DuettoError):
            error.add_note(f"This is of seed {seed}, one of {of}{others}")
            raise error
    if len(failed) == of and len({str(error) for error in errors}) == 1:
        raise errors[0]
    listed = "\n".join(f"Seed {seed}: {error}" for seed, error in failed.items())
    raise DuettoError(f"{len(failed)} of {of} seeds failed{others}\n{listed}") from errors[0]


def _others(trainers: list[Trainer]) -> str:
    """The end of a sentence on the seeds that did not fail."""
    if stopped := [trainer.folder for trainer in trainers if trainer.stopped]:
        return f"; {len(stopped)} of the others stopped before their end, and go on with: {to_resume(stopped[0])} ..."
    return "; the others are done." if trainers else "."
