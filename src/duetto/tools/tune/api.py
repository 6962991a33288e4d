"""`duetto.tune`: start a study, or continue one."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from pathlib import Path
from typing import Any

import yaml

from duetto.algorithms import Algorithm
from duetto.environments import is_instance
from duetto.errors import DuettoError, UsageError
from duetto.runs.argument_checks import whole
from duetto.runs.seeds import parse_seeds
from duetto.runs.spec import RunSpec, slug
from duetto.storage import safe_yaml
from duetto.storage.lock import FolderLock
from duetto.tools.sweep.api import displayed
from duetto.tools.sweep.display import SweepDisplay
from duetto.tools.tune.plan import Plan
from duetto.tools.tune.results import TuneResult, results_of
from duetto.tools.tune.sampler import Sampler, distributions
from duetto.tools.tune.space import space
from duetto.tools.tune.study import Study


def tune(
    algorithm: Algorithm | type[Algorithm] | str,
    environment: Any,
    *,
    trials: int = 50,
    seeds: int | str | Sequence[int] = 3,
    search: dict[str, Any] | str | Path | None = None,
    search_only: bool = False,
    jobs: int = 1,
    prune: bool = True,
    output: str | Path | None = None,
    preset: str | None = None,
    environment_options: dict[str, Any] | None = None,
    progress: bool = True,
    **options: Any,
) -> TuneResult:
    """Search hyper-parameters, and return the best; the same call continues a study that was ended.

    Ctrl-C, SIGTERM and SIGHUP end it as they end `duetto.train`.

    Args:
        algorithm: As in `duetto.train`; its options are the center of the search, and the first trial.
        environment: An id, or a function that makes environments and can be sent to another process.
        trials: Number of trials in all, including those of earlier calls.
        seeds: Seeds of each trial's runs, as in `duetto.train`; its score is the interquartile mean over them of the
            last evaluations' mean returns.
        search: By option, or a YAML file of that: `{"tau": {"low": 1e-3, "high": 0.05, "log": True}}`, "step",
            `{"factor": 4}`, `{"choices": [...]}`, "auto" for the range of its type, None to leave it unchanged.
        search_only: Search the options of `search` alone.
        jobs: Processes that train at a time. With 1, the same call gives the same trials.
        prune: End a trial early if its score is below the median of the complete trials at the same step.
        output: The study's folder; by default `studies/<algorithm>-<environment>`.
        preset: As in `duetto.train`; or FILE.yaml.
        environment_options: Arguments for the environment's constructor.
        progress: Show on a terminal or in a notebook what the command line shows.
        options: Every field of `RunOptions`, and hyper-parameters (not with an object), which keep their values and
            are not searched. `seed` is the seed of the search.

    Raises:
        UsageError: A mistake in the call, before anything is written; or the folder belongs to another study.
        DuettoError: No trial is complete.
    """
    own = [argument for argument, kind in signature(tune).parameters.items() if kind.kind is kind.KEYWORD_ONLY]
    spec = RunSpec.of(algorithm, environment, preset, environment_options, options, caller="tune", arguments=own)
    plan = planned_study(
        spec,
        seeds,
        read_search(search) if isinstance(search, str | Path) else search,
        search_only,
        frozenset(options) & frozenset(spec.algorithm.options()),
        prune,
    )
    return displayed(lambda display: conduct(plan, output, trials, jobs, display), progress)


def planned_study(
    spec: RunSpec,
    seeds: int | str | Sequence[int],
    search: dict[str, Any] | None = None,
    search_only: bool = False,
    fixed: frozenset[str] = frozenset(),
    prune: bool = True,
) -> Plan:
    """Return the plan of a study for `conduct`; nothing is written. Raises UsageError as `tune` does.

    Args:
        spec: The center of the search; its seed is that of the search.
        seeds: As `parse_seeds` takes them.
        search: How each option is searched, by name.
        search_only: Search the options of `search` alone.
        fixed: Hyper-parameters that keep their values.
        prune: As in `tune`.
    """
    numbers = parse_seeds(seeds)
    if is_instance(spec.environment):
        raise UsageError("A study cannot share one environment object. Give an id, or a function that makes it.")
    if not spec.options.evaluate_every:
        raise UsageError("evaluate_every is 0, but a study compares evaluations. Give the steps between them.")
    searched, cwd = space(spec.algorithm, search, search_only, fixed), Path.cwd()
    distributions(searched)  # raises for a range that cannot be drawn from
    return Plan(spec, spec.config(), searched, numbers, prune, cwd)


def conduct(
    plan: Plan, output: str | Path | None, trials: int, jobs: int, display: SweepDisplay | None = None
) -> TuneResult:
    """Work on a study until it has so many trials, and return its results. Raises as `tune` does."""
    trials, jobs = whole("trials", trials), whole("jobs", jobs)
    default = Path("studies") / f"{plan.center.name()}-{slug(plan.config.environment)}"
    folder = plan.cwd / (default if output is None else output)
    try:
        plan.record(folder)
        with FolderLock(folder):
            start = {name: getattr(plan.center, name) for name in plan.space}
            sampler = Sampler(folder / "journal.jsonl", plan.space, plan.config.run.seed, start, plan.prune_from)
            study = Study(plan, folder, sampler, trials, jobs)
            if display is not None:
                display.announce(study)
            study.work()
            return results_of(study)
    except OSError as error:
        path = error.filename or folder
        raise DuettoError(
            f"{path} cannot be written: {error.strerror or error}. Remove the cause; the same call continues."
        ) from error


def read_search(path: str | Path) -> dict[str, Any]:
    """Read a search file: how each option is searched, by name. UsageError if it is not one."""
    try:
        search = safe_yaml.parse(Path(path).read_text("utf-8")) or {}
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UsageError(f"The search file {path} cannot be read ({error}).") from error
    if not isinstance(search, dict):
        raise UsageError(f"The search file {path} has no options; write tau: {{low: 0.001, high: 0.05, log: true}}.")
    return search
