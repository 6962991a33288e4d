"""`duetto.tune`: begin a study, or go on with one."""

from __future__ import annotations

import dataclasses
from inspect import signature
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from duetto.algorithms import Algorithm
from duetto.display.live import is_watched
from duetto.environments import is_instance
from duetto.errors import DuettoError, UsageError
from duetto.runs.api import made_of
from duetto.runs.asked import check_kinds, count, hint
from duetto.runs.planning import planned, slug
from duetto.storage import yaml_files
from duetto.storage.config import RunOptions
from duetto.storage.folder_lock import FolderLock
from duetto.storage.origin import Origin
from duetto.training.interruption import passed_on, say_how
from duetto.training.notices import shown_elsewhere
from duetto.tuning import pictures, results
from duetto.tuning.confirming import Confirmed, confirming
from duetto.tuning.folder import settle
from duetto.tuning.optuna import Optimizer, Trial, best_of
from duetto.tuning.results import Tuned
from duetto.tuning.showing import StudyDisplay
from duetto.tuning.space import beside_the_start, space
from duetto.tuning.study import Plan, Study


def tune(
    algorithm: Algorithm | type[Algorithm] | str,
    environment: Any,
    *,
    trials: int = 50,
    seeds: int = 3,
    search: dict[str, Any] | str | Path | None = None,
    search_only: bool = False,
    jobs: int = 1,
    prune: bool = True,
    confirm: int = 0,
    output: str | Path | None = None,
    preset: str | None = None,
    environment_options: dict[str, Any] | None = None,
    progress: bool = True,
    **options: Any,
) -> Tuned:
    """Search hyper-parameters, and return what was found; the same call goes on with a study that was ended.

    Ctrl-C, SIGTERM and SIGHUP end it as they do `duetto.train`.

    Args:
        algorithm: As in `duetto.train`; what it sets is the centre of the search, and the first trial.
        environment: An id, or a function that makes environments, which can be sent to another process.
        trials: Number of trials in all, those of earlier calls included.
        seeds: Runs of each trial; its score is the interquartile mean over them of the last evaluations' mean returns.
        search: By option, or a YAML file of that: `{"tau": {"low": 1e-3, "high": 0.05, "log": True}}`, "step",
            `{"choices": [...]}`, "auto" for what the option's type says, None to leave it as it is.
        search_only: Search the options of `search` alone.
        jobs: Processes that train at a time. With 1, the same call gives the same trials.
        prune: End a trial early that is worse at an evaluation than the median of the complete trials.
        confirm: Number of new seeds to train the best trial with in the end: as it was not chosen by them, their score
            is free of the luck of having been chosen.
        output: The study's folder; by default `studies/<algorithm>-<environment>`.
        preset: As in `duetto.train`; or FILE.yaml.
        environment_options: Arguments for the environment's own constructor.
        progress: Show on a terminal or in a notebook what the command line shows.
        options: Every field of `RunOptions`, and hyper-parameters (not beside an object), which keep their values and
            are not searched. `seed` is the first seed of every trial, and that of the search.

    Raises:
        UsageError: A mistake in the call, before anything is written; or the folder is of another study.
        DuettoError: No trial is complete.
    """
    check_kinds(environment_options=environment_options)
    made, name, values, rest = made_of(algorithm, environment, preset, options)
    known = [field.name for field in dataclasses.fields(RunOptions)]
    for option in rest:
        if option not in known:
            own = [argument for argument, kind in signature(tune).parameters.items() if kind.kind is kind.KEYWORD_ONLY]
            meant = hint(option, made, own, known, is_object=isinstance(algorithm, Algorithm))
            raise UsageError(f"tune has no option {option!r}.{meant}")
    fixed = frozenset(options) - frozenset(rest)
    run = RunOptions(**values.run | rest)
    kwargs = values.environment | (environment_options or {})
    asked = read_search(search) if isinstance(search, str | Path) else search
    plan = planned_study(made, environment, run, name, kwargs, None, asked, search_only, fixed, seeds, prune)
    console = Console()
    with passed_on() as came:
        if not (progress and is_watched(console)):
            found = conduct(plan, output, trials, jobs, confirm)
            say_how(came, "The same call goes on.")
            return found
        with shown_elsewhere(), StudyDisplay(console) as display:
            found = conduct(plan, output, trials, jobs, confirm, display)
        display.finish(found)
    return found


def planned_study(
    algorithm: Algorithm,
    environment: Any,
    run: RunOptions,
    preset: str,
    environment_options: dict[str, Any],
    origin: Origin | None,
    search: dict[str, Any] | None,
    search_only: bool,
    fixed: frozenset[str],
    seeds: int,
    prune: bool,
) -> Plan:
    """The plan of a study for `conduct`; nothing is written. Raises UsageError if the parts do not fit together."""
    seeds = count("seeds", seeds)
    if is_instance(environment):
        raise UsageError(
            "Every run of a study needs an environment of its own: hand over an id, or a function that makes them."
        )
    if not run.evaluate_every:
        raise UsageError("evaluate_every is 0; a study goes by evaluations: give it steps between them.")
    searched = space(algorithm, search, search_only, fixed)
    config = planned(algorithm, environment, run, preset, environment_options, origin)
    return Plan(config, environment, searched, seeds, prune)


def conduct(
    plan: Plan, output: str | Path | None, trials: int, jobs: int, confirm: int, display: StudyDisplay | None = None
) -> Tuned:
    """Work on a study until it has so many trials, and return what it found. Raises as `tune` does."""
    trials, jobs = count("trials", trials), count("jobs", jobs)
    confirm = confirm and count("confirm", confirm)
    Optimizer.needed()
    pictures.needed()
    default = Path("studies") / f"{plan.centre.name()}-{slug(plan.config.environment)}"
    folder = default if output is None else Path(output)
    settle(plan, folder)
    with FolderLock(folder):
        optimizer = Optimizer(folder / "journal.jsonl", plan.space, plan.config.run.seed, plan.start(), plan.prune_from)
        study = Study(plan, folder, optimizer, trials, jobs)
        if (note := beside_the_start(plan.space, plan.start())) and not optimizer.trials():
            study.notices.append(note)
        if display is not None:
            display.announce(study)
        study.work()
        if display is not None:
            display.doing("writing down what was found, evaluating the best in other episodes")
        concluded = _concluded(study, optimizer)
        if not confirm or concluded.best is None or concluded.stopped:
            return concluded
        return _confirmed(concluded, concluded.best, confirming(plan, folder, concluded.best, confirm, jobs), display)


def _confirmed(found: Tuned, best: Trial, study: Study, display: StudyDisplay | None) -> Tuned:
    """Train the best trial once more in `study`, and add what it comes to."""
    if display is not None:
        display.confirming(study, best)
    study.work()
    again = study.optimizer.trial(best.number)
    reason = again.reason.partition("\n")[0]
    confirmed = Confirmed(again.value, again.seeds, results.runs_of(study.plan, study.runs, again), reason)
    notices = (*found.notices, *study.notices)
    return dataclasses.replace(found, confirmed=confirmed, stopped=study.stopped, notices=notices)


def _concluded(study: Study, optimizer: Optimizer) -> Tuned:
    """Write down what was found, also in a study that was stopped. DuettoError if no trial is complete."""
    plan, folder, found = study.plan, study.folder, optimizer.trials()
    results.write_table(folder, found)
    best, preset, fresh = best_of(found), None, None
    importances = optimizer.importances()
    drawn = pictures.draw(folder, found, importances, f"{plan.centre.name()} on {plan.config.environment}")
    runs = results.runs_of(plan, study.runs, best) if best else ()
    if best is not None:
        preset = results.write_preset(plan, folder, best, found)
        if not study.stopped:
            try:
                fresh = results.judged_afresh(plan, runs)
            except DuettoError as error:  # half of a run may have been deleted to make room
                study.notices.append(f"The best was not evaluated in other episodes. {error}")
    elif not study.stopped:
        reasons = [trial.reason.partition("\n")[0] for trial in found if trial.reason]
        says = f"What the last one says: {reasons[-1]}" if reasons else "The same call goes on with them."
        raise DuettoError(f"None of the {len(found)} trials in {folder} is complete. {says}")
    notices = tuple(study.notices)
    return Tuned(folder, tuple(found), best, runs, preset, drawn, fresh, None, importances, study.stopped, notices)


def read_search(path: str | Path) -> dict[str, Any]:
    """Read a search file: how each option is searched, by name. UsageError if it is none."""
    try:
        found = yaml_files.parse(Path(path).read_text("utf-8")) or {}
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UsageError(f"The search file {path} cannot be read ({error}).") from error
    if not isinstance(found, dict):
        raise UsageError(f"The search file {path} has no options; write tau: {{low: 0.001, high: 0.05, log: true}}.")
    return found
