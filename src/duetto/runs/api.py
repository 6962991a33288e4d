"""The Python interface: `duetto.train` and `duetto.load`."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from inspect import signature
from pathlib import Path
from typing import Any, overload

from rich.console import Console

from duetto import trackers
from duetto.algorithms import ALGORITHMS, Algorithm
from duetto.algorithms.suggestions import did_you_mean
from duetto.cluster import Cluster
from duetto.errors import UsageError
from duetto.networks.specs import CustomNetwork
from duetto.presets import Preset, beside, choose
from duetto.runs.agent import Agent
from duetto.runs.argument_checks import check_kinds, unknown
from duetto.runs.finetune import WarmStart
from duetto.runs.parallel_seeds import start_many
from duetto.runs.run import Run, start
from duetto.storage.config import RunOptions
from duetto.storage.user_code import Origin
from duetto.trackers import Tracker
from duetto.training import signals
from duetto.training.callbacks import AnyCallback, Callback, check
from duetto.training.progress import shown
from duetto.training.progress_lines import is_watched
from duetto.training.trainer import Trainer


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
    from_optimizers: bool = False,
    from_memory: bool = False,
    cluster: Cluster | None = None,
    track: Sequence[str | Tracker] = (),
    **options: Any,
) -> Run: ...


@overload
def train(
    algorithm: Algorithm | type[Algorithm] | str, environment: Any, *, seeds: Iterable[int], **options: Any
) -> list[Run]: ...


def train(
    algorithm: Algorithm | type[Algorithm] | str,
    environment: Any,
    *,
    seeds: Iterable[int] | None = None,
    preset: str | None = None,
    runs_dir: str | Path = "runs",
    name: str | None = None,
    callbacks: Sequence[AnyCallback] = (),
    environment_options: dict[str, Any] | None = None,
    progress: bool = True,
    from_run: Run | str | Path | None = None,
    from_checkpoint: str | int = "last",
    from_optimizers: bool = False,
    from_memory: bool = False,
    cluster: Cluster | None = None,
    track: Sequence[str | Tracker] = (),
    **options: Any,
) -> Run | list[Run]:
    """Train an agent and return its run; with `seeds` one for each, and their runs.

    Args:
        algorithm: A name, "td3", or a class, with the preset that the command line takes and `options` on top of it; or
            an object, `duetto.TD3(policy_delay=2)`, whose fields are the hyper-parameters, taken as it is.
        environment: An id, a Gymnasium environment or vector environment, or a callable that makes environments.
        seeds: Train with each of these seeds, side by side in this process: `range(10)`. Every seed has a folder of its
            own, and is what it would be alone, to rounding; of each `Callback` it has a copy of its own.
        preset: Its name; by default the environment's own or its family's, else "default", the fields' defaults.
        runs_dir: The parent of the run's folder.
        name: The folder's name; by default made of algorithm, environment and seed.
        callbacks: Objects of `duetto.Callback`, and functions that get the `Trainer` after every vector step;
            `trainer.stop()` ends the run early.
        environment_options: Arguments for the environment's own constructor.
        cluster: `duetto.Cluster(actors=4)`, for example: where the environments live, if not in this process.
        progress: Show on a terminal or in a notebook what the command line shows; elsewhere nothing. Notices are
            logged, too, as warnings of the standard library's logger "duetto".
        track: Services that show the run: "wandb", "mlflow", "trackio", or objects of `duetto.trackers`.
        from_run: Another run, of the same spaces, whose networks this one begins with, to fine-tune them.
            Hyper-parameters and framework may be others.
        from_checkpoint: Its checkpoint: "last", "best", or a step.
        from_optimizers: Take over its optimisers, too.
        from_memory: Take over its replay memory, too.
        options: `steps`, `seed`, `backend`, `num_envs` ... : every field of `RunOptions`; and the hyper-parameters, if
            `algorithm` is no object.

    Ctrl-C, SIGTERM and SIGHUP end the run after its step, with a checkpoint, and then do what they would have done
    without it: KeyboardInterrupt, the end of the process. A second one does so at once.

    Raises UsageError for a mistake in the call, before anything is written; DuettoError where a run fails.
    """
    check(callbacks)
    check_kinds(preset=preset, name=name, runs_dir=runs_dir, environment_options=environment_options, cluster=cluster)
    tracking = trackers.callbacks(track)
    made, preset_name, values, options = made_of(algorithm, environment, preset, options)
    known = [field.name for field in dataclasses.fields(RunOptions)]
    for option in options:
        if option not in known:
            own = [argument for argument, kind in signature(train).parameters.items() if kind.kind is kind.KEYWORD_ONLY]
            raise unknown(option, made, own, known, is_object=isinstance(algorithm, Algorithm))

    other = from_run.path if isinstance(from_run, Run) else from_run
    begun_with = (None if other is None else str(other), str(from_checkpoint), from_optimizers, from_memory)

    run_options = RunOptions(**values.run | options)
    how: dict[str, Any] = {
        "runs_dir": runs_dir,
        "name": name,
        "preset": preset_name,
        "environment_options": values.environment | (environment_options or {}),
        "beginning": WarmStart.asked_for(*begun_with),
    }
    console = Console()
    if seeds is not None:
        _check_together("seed" in options, cluster, tracking)
        return _train_many(made, environment, run_options, seeds, callbacks, console, progress, how)

    def begin(on_start: Callable[[Trainer], None] | None = None, watching: Sequence[AnyCallback] = ()) -> Run:
        own = [*watching, *callbacks, *tracking]
        return start(made, environment, run_options, callbacks=own, on_start=on_start, cluster=cluster, **how)

    with signals.passed_on() as came:
        if not (progress and is_watched(console)):
            run = begin()
            signals.say(came, [run.path])
            return run
        with shown(console, f"{made.name()}: making environments and networks") as display:
            run = begin(display.announce, [display])
            display.finish(run.path)
    return run


def _train_many(
    algorithm: Algorithm,
    environment: Any,
    options: RunOptions,
    seeds: Iterable[int],
    callbacks: Sequence[AnyCallback],
    console: Console,
    progress: bool,
    how: dict[str, Any],
) -> list[Run]:
    def own() -> list[AnyCallback]:
        return [_copied(one) if isinstance(one, Callback) else one for one in callbacks]

    with signals.passed_on() as came:
        if not (progress and is_watched(console)):
            runs = start_many(algorithm, environment, options, seeds, callbacks=own, **how)
            signals.say(came, [run.path for run in runs])
            return runs
        with shown(console, f"{algorithm.name()}: making environments and networks") as display:
            watched = {"callbacks": lambda: [display, *own()], "on_start": display.announce_all}
            runs = start_many(algorithm, environment, options, seeds, **watched, **how)
            display.finish(*[run.path for run in runs])
    return runs


def _copied(callback: Callback) -> Callback:
    """A copy of a callback for one more seed. UsageError if it cannot be copied."""
    try:
        return copy.deepcopy(callback)
    except Exception as error:  # of what it holds
        raise UsageError(
            f"Each seed needs a {type(callback).__name__} of its own, and this one cannot be copied ({error}). Let it "
            "open what it needs in on_start, or train the seeds one after another."
        ) from error


def _check_together(seed: bool, cluster: Cluster | None, tracking: Sequence[AnyCallback]) -> None:
    """Raise UsageError for an argument that only goes with one seed."""
    for what, given in (("seed", seed), ("cluster", cluster), ("track", tracking)):
        if given:
            raise UsageError(f"{what} goes with one run in a process, and seeds are several. Leave one of the two out.")


def made_of(
    algorithm: Algorithm | type[Algorithm] | str,
    environment: Any,
    preset: str | None,
    options: dict[str, Any],
    origin: Origin | None = None,
) -> tuple[Algorithm, str, Preset, dict[str, Any]]:
    """Make the algorithm; return it, the preset's name and values, and the options that are not the algorithm's.

    If the `origin` is a file, its presets are beside that.
    """
    check_kinds(preset=preset)
    if not (
        isinstance(algorithm, Algorithm | str) or (isinstance(algorithm, type) and issubclass(algorithm, Algorithm))
    ):
        raise UsageError(
            f"algorithm is {algorithm!r}; it must be a name, such as 'td3', or an algorithm: duetto.TD3()."
        )
    if isinstance(algorithm, Algorithm):
        if preset is not None:
            raise UsageError(
                f"A preset is for an algorithm that is named: duetto.train({algorithm.name()!r}, ..., "
                f"preset={preset!r}). An object is taken as it is."
            )
        return algorithm, "default", Preset(), options
    if isinstance(algorithm, str):
        if algorithm not in ALGORITHMS:
            hint = did_you_mean(algorithm.lower(), ALGORITHMS, "There are")
            raise UsageError(f"There is no algorithm {algorithm!r}.{hint}")
        algorithm = ALGORITHMS[algorithm]
    own: dict[str, Preset] | None = None
    if algorithm not in ALGORITHMS.values():
        own = beside(Path(origin.file)) if origin and origin.file else {}
    name, values = choose(algorithm.name(), environment if isinstance(environment, str) else "", preset, own)
    mine = {option: value for option, value in options.items() if option in algorithm.options()}
    rest = {option: value for option, value in options.items() if option not in mine}
    return algorithm(**values.algorithm | mine), name, values, rest


def load(
    path: str | Path,
    checkpoint: str | int = "last",
    backend: str | None = None,
    networks: dict[str, CustomNetwork] | None = None,
    algorithm: type[Algorithm] | None = None,
    trust: bool = False,
) -> Agent:
    """Load the trained agent from a run's folder. No code in the folder is run, nor any that a stranger's folder names.

    Args:
        path: The run's folder.
        checkpoint: "last", "best", or a step.
        backend: "torch" or "jax", whichever trained it; by default the one that did, if it is installed.
        networks: The run's own networks by field name (`{"actor_network": CustomNetwork(...)}`), if it has any.
        algorithm: The class, if it was handed over to `train` and is not Duetto's own.
        trust: Run the file of an algorithm that the folder names, whoever began the run.
    """
    return Agent.load(Path(path), checkpoint, backend, networks, algorithm, trust)
