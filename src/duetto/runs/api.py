"""The function `duetto.train`."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any, overload

from duetto import trackers
from duetto.algorithms import Algorithm
from duetto.cluster import Cluster
from duetto.errors import UsageError
from duetto.runs.argument_checks import parse_seeds
from duetto.runs.finetune import WarmStart
from duetto.runs.parallel_seeds import start_many
from duetto.runs.run import Run, start
from duetto.runs.spec import RunSpec
from duetto.trackers import Tracker
from duetto.training.callbacks import AnyCallback, Callback, check
from duetto.training.progress import ProgressDisplay, watched


@overload
def train(
    algorithm: Algorithm | type[Algorithm] | str,
    environment: Any,
    *,
    seeds: None = None,
    preset: str | None = None,
    runs_dir: str | Path = "runs",
    name: str | None = None,
    callbacks: Sequence[AnyCallback] = (),
    environment_options: dict[str, Any] | None = None,
    progress: bool = True,
    from_run: Run | str | Path | None = None,
    from_checkpoint: str | int = "last",
    cluster: Cluster | None = None,
    track: Sequence[str | Tracker] = (),
    **options: Any,
) -> Run: ...


@overload
def train(
    algorithm: Algorithm | type[Algorithm] | str, environment: Any, *, seeds: int | str | Iterable[int], **options: Any
) -> list[Run]: ...


def train(
    algorithm: Algorithm | type[Algorithm] | str,
    environment: Any,
    *,
    seeds: int | str | Iterable[int] | None = None,
    preset: str | None = None,
    runs_dir: str | Path = "runs",
    name: str | None = None,
    callbacks: Sequence[AnyCallback] = (),
    environment_options: dict[str, Any] | None = None,
    progress: bool = True,
    from_run: Run | str | Path | None = None,
    from_checkpoint: str | int = "last",
    cluster: Cluster | None = None,
    track: Sequence[str | Tracker] = (),
    **options: Any,
) -> Run | list[Run]:
    """Train an agent and return its run; with `seeds`, a list of one run per seed.

    Args:
        algorithm: A name such as "td3", or a class: the hyperparameters come from a preset, and `options` override
            them. Or an object such as `duetto.TD3(policy_delay=2)`: its fields are the hyperparameters, and no preset
            is used.
        environment: An id, a Gymnasium environment or vector environment, or a callable that makes environments.
        seeds: Train one run for each of these seeds, side by side in this process: 5 means the seeds 0 to 4; or give
            `range(10)` or "0,3,7". Each run has its own folder and its own copies of the callbacks. Up to rounding, its
            results equal those of training this seed alone.
        preset: A preset's name. By default Duetto uses the preset for this environment, else the preset for its family
            (such as Atari), else "default", in which all hyperparameters have their defaults.
        runs_dir: The parent of the run's folder.
        name: The folder's name; by default algorithm, environment and seed.
        callbacks: Objects of `duetto.Callback`, and functions that get the `Trainer` after every vector step;
            `trainer.stop()` ends the run early.
        environment_options: Arguments of the environment's constructor.
        cluster: A cluster that steps the environments, such as `duetto.Cluster(actors=4)`; None: use this process.
        progress: Show progress on a terminal or in a notebook. Notices also go to the logger "duetto", as warnings.
        track: Services that show the run: "wandb", "mlflow", "trackio", or objects of `duetto.trackers`.
        from_run: Fine-tune the networks of this run. Both runs need the same spaces; other options may differ.
        from_checkpoint: The checkpoint of `from_run`: "last", "best", or a step.
        options: Fields of `RunOptions`, such as `steps`; and hyperparameters, unless `algorithm` is an object.

    After Ctrl-C, SIGTERM or SIGHUP, the run completes its step, writes a checkpoint, and raises the signal again. A
    second signal ends the process at once.

    Raises UsageError for a mistake in the call, before anything is written; DuettoError if a run fails.
    """
    check(callbacks)
    tracking = trackers.callbacks(track)
    own = [argument for argument, kind in signature(train).parameters.items() if kind.kind is kind.KEYWORD_ONLY]
    spec = RunSpec.of(algorithm, environment, preset, environment_options, options, caller="train", arguments=own)
    warm_start = WarmStart.asked_for(from_run, str(from_checkpoint))
    spec = replace(spec, warm_start=warm_start, cluster=cluster, runs_dir=runs_dir, name=name)
    several = {} if seeds is None else {"seed": "seed" in options, "cluster": cluster, "track": tracking}
    if refused := next((argument for argument, given in several.items() if given), None):
        raise UsageError(f"{refused} cannot be combined with seeds. Leave out one of the two.")
    with watched(progress, f"{spec.algorithm.name()}: making environments and networks") as (display, ended):
        runs = _trained(spec, seeds, [*callbacks, *tracking], display)
        ended([run.path for run in runs])
    return runs[0] if seeds is None else runs


def _trained(spec: RunSpec, seeds: Any, callbacks: Sequence[AnyCallback], display: ProgressDisplay | None) -> list[Run]:
    watching = [] if display is None else [display]
    if seeds is None:
        return [start(spec, [*watching, *callbacks])]
    return start_many(
        spec,
        parse_seeds(seeds),
        lambda: [*watching, *(copy.deepcopy(one) if isinstance(one, Callback) else one for one in callbacks)],
        display and display.announce,
    )
