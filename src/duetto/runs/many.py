"""Runs of several seeds, trained side by side in this process."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from duetto.algorithms import Algorithm
from duetto.errors import DuettoError, UsageError
from duetto.learners.voices import Choir
from duetto.runs.beginning import Beginning
from duetto.runs.run import Run, begun, new_folder, planned, run_name
from duetto.storage.config import Config, RunOptions
from duetto.storage.origin import Origin
from duetto.training.callbacks import AnyCallback
from duetto.training.chorus import run_together
from duetto.training.session import Session, is_instance


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
    on_start: Callable[[list[Session]], None] | None = None,
    origin: Origin | None = None,
    beginning: Beginning | None = None,
) -> list[Run]:
    """`start` for each seed, at once: a folder each, and what `start` makes in it. `callbacks` are made for each.

    Raises:
        UsageError: As `start`; or the algorithm has networks here that cannot be computed side by side.
        DuettoError: Some of the seeds failed; the others have made all their steps.
    """
    configs = [
        planned(algorithm, environment, one, preset, environment_options, origin) for one in _each(options, seeds)
    ]
    if is_instance(environment):
        raise UsageError(
            "An environment that is made already is one; each seed needs its own. Pass its id, or a factory that makes "
            "a new one at each call."
        )
    choir, paths, began = Choir([config.run.seed for config in configs]), [], False
    try:
        with ExitStack() as opened:
            sessions: list[Session] = []
            for config in configs:
                paths.append(new_folder(Path(runs_dir), _name(name, config)))
                session = begun(config, paths[-1], environment, beginning, build_learner=choir.voice)
                sessions.append(opened.enter_context(session))
                sessions[-1].look_ahead()
            if on_start is not None:
                on_start(sessions)
            began = True
            raised = run_together(choir, sessions, [callbacks() for _ in sessions])
    finally:
        if not began:  # a mistake in the call: nothing is left behind
            for path in paths:
                shutil.rmtree(path, ignore_errors=True)
    _raise({config.run.seed: error for config, error in zip(configs, raised, strict=True) if error}, len(configs))
    given = None if configs[0].remakeable else environment
    own = type(algorithm) if configs[0].origin else None
    return [Run(path, given, algorithm.custom_networks(), algorithm=own) for path in paths]


def _each(options: RunOptions, seeds: Iterable[int]) -> list[RunOptions]:
    numbers = list(seeds)
    for seed in numbers:
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise UsageError(f"seeds has {seed!r}; they must be whole numbers, as in range(10).")
        if numbers.count(seed) > 1:
            raise UsageError(f"The seed {seed} is given twice. Two runs of it would be the same.")
    if not numbers:
        raise UsageError("seeds is empty. Give one at least.")
    return [dataclasses.replace(options, seed=seed) for seed in numbers]


def _name(name: str | None, config: Config) -> str:
    seed = config.run.seed
    return run_name(config.algorithm, config.environment, seed) if name is None else f"{name}-s{seed}"


def _raise(failed: dict[int, BaseException], of: int) -> None:
    """What some seeds have raised: as it is, where it is no sentence for the user or all say the same."""
    if not failed:
        return
    errors = list(failed.values())
    for error in errors:
        if not isinstance(error, DuettoError):
            raise error
    if len(failed) == of and len({str(error) for error in errors}) == 1:
        raise errors[0]
    others = "; the others are done." if len(failed) < of else "."
    listed = "\n".join(f"Seed {seed}: {error}" for seed, error in failed.items())
    raise DuettoError(f"{len(failed)} of {of} seeds failed{others}\n{listed}") from errors[0]
