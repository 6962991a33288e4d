"""Run a study: a sweep whose runs come from a sampler.

    while trials remain:
        ask the sampler for options; train with them and every seed
        after each evaluation: report the seed's score, and prune the trial if the sampler says so
        at the trial's end: record its score, or why it has none

After each evaluation, a run waits for the decision whether to prune it. So with one process, a study's seed determines
its trials. The study's folder contains everything that the loop needs to continue:

    study.yaml      the study's settings; a call with other settings is refused
    journal.jsonl   every trial, in Optuna's format
    trials/0007/    the run folders of trial 7, one for each seed, like those of `duetto train`
    workers.log     the output of environments
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from duetto.algorithms import Algorithm
from duetto.errors import DuettoError, UsageError, near
from duetto.runs.pool import DIVERGED, FAILED, HINDERED, IN_USE, Job, ProcessPool, pack
from duetto.runs.spec import RunSpec, run_name
from duetto.storage import atomic_io, safe_open
from duetto.storage.config import Config
from duetto.storage.reproducibility import changed_since, flat
from duetto.storage.safe_yaml import to_yaml
from duetto.storage.user_code import algorithm_source
from duetto.tools.plot.curves import interquartile_mean
from duetto.tools.sweep.sweep import PlannedRun, Sweep
from duetto.tools.tune.sampler import Sampler, TrialRecord, best_of
from duetto.tools.tune.space import Space, as_text
from duetto.training.progress_lines import clock

FORMAT = 1
TRIALS = "trials"  # the folder of the trials' runs, in the study's folder
MAX_RUNS = 20  # runs in one process; a limit, since memory may leak
MAX_WINDOW = 3  # maximum number of evaluations that a seed's score averages


@dataclass(frozen=True)
class Plan:
    """The settings of a study. They are recorded in its folder; a call with other settings is refused."""

    spec: RunSpec  # a run with the options at the center of the search; its seed is the seed of the search
    config: Config  # the config of that run
    space: Space
    seeds: tuple[int, ...]
    prune: bool

    @property
    def center(self) -> Algorithm:
        """The algorithm with the options at the center of the search."""
        return self.config.algorithm

    @property
    def window(self) -> int:
        """The number of evaluations that a seed's score averages: those of the last quarter of steps, at most three.

        The mean of several evaluations is less noisy than the last evaluation.
        """
        return min(max(1, self.config.run.steps // self.config.run.evaluate_every // 4), MAX_WINDOW)

    @property
    def prune_from(self) -> int | None:
        """The first step of each seed at which trials may be pruned; None: never.

        It is a fifth of a run's steps, but not before the first update and the end of the random steps.
        """
        steps, algorithm = self.config.run.steps, self.center
        first, _ = algorithm.memory().first_update(self.config.run.num_envs)
        return max(steps // 5, first, algorithm.first_random_steps()) if self.prune else None

    def record(self, folder: Path) -> None:
        """Write the plan to `study.yaml` in a new folder. In a study's folder, check that the plan is the same.

        Raises:
            UsageError: The folder belongs to another study, or contains something else.
            OSError: The folder cannot be written.
        """
        path = folder / "study.yaml"
        if not path.exists():
            if folder.exists() and any(not child.name.startswith(".") for child in folder.iterdir()):
                raise UsageError(f"{folder} exists and is no study: it has no study.yaml. Choose another --output.")
            folder.mkdir(parents=True, exist_ok=True)
            atomic_io.publish_file(path, to_yaml(self.to_dict()).encode())
            return
        if changed := changed_since(path, self.to_dict(), flat):
            raise UsageError(
                f"{folder} belongs to another study: {changed}. Give the same options to continue that study (only "
                "--trials and --jobs may change), and restore edited files; or start a new one with --output."
            )

    def to_dict(self) -> dict[str, Any]:
        """Return all settings that affect the trials and their scores, the contents of `study.yaml`."""
        config = self.config.to_dict()
        return {
            "search": {name: dimension.to_dict() for name, dimension in self.space.items()},
            "seeds": list(self.seeds),
            "prune": self.prune,
            "algorithm": config["algorithm"] | {"from": algorithm_source(config["algorithm"])},
            "environment": {key: config["environment"].get(key) for key in ("id", "options", "sha256")},
            "run": config["run"],
            "format": FORMAT,
        }


@dataclass(eq=False)
class SeedRun(PlannedRun):
    """The run of one seed of a trial."""

    trial: RunningTrial = field(kw_only=True)
    evaluations: dict[int, float] = field(default_factory=dict)  # mean returns by due step (see _judge), except step 0

    @property
    @override
    def complete(self) -> bool:
        return self.steps in self.evaluations


@dataclass(eq=False)
class RunningTrial:
    """A trial in progress, and its runs."""

    trial: TrialRecord
    runs: list[SeedRun] = field(default_factory=list)
    verdict: str = ""  # "pruned", "diverged" or "failed"
    reason: str = ""


class Study(Sweep):
    """A running study. The caller has locked its folder, so no other process continues the same study."""

    def __init__(self, plan: Plan, folder: Path, sampler: Sampler, trials: int, jobs: int) -> None:
        parents = folder / TRIALS
        safe_open.check_folders([parents, *parents.glob("*"), *parents.glob("*/*")])
        super().__init__(folder, [], ProcessPool(jobs, MAX_RUNS))
        self.plan: Plan = plan
        self.sampler: Sampler = sampler
        self.trials: int = trials
        self._obstacle = ""

    @override
    def work(self) -> None:
        """Train until the last trial ends, or until Ctrl-C.

        Raises DuettoError if something outside the runs stops them, such as a full disk. The same call continues.
        """
        pack(self._job(self.plan.center, "", 0))  # raises if a job cannot be sent to a process
        for trial in self.sampler.unfinished():
            self._add(trial)
        super().work()
        if self._obstacle:
            raise DuettoError(self._obstacle)

    # ------------------------------------------------------------------------------------------------ trials
    @override
    def _next(self) -> PlannedRun | None:
        while not (run := super()._next()) and len(self.sampler.trials()) < self.trials:
            self._add(self.sampler.ask())
        return run

    def _add(self, trial: TrialRecord) -> None:
        """Add a run for each seed of a trial, or record a failure if the algorithm refuses the options."""
        try:
            algorithm = dataclasses.replace(self.plan.center, **trial.options)
        except UsageError as error:
            self._record(trial, FAILED, reason=str(error))
            return
        running = RunningTrial(trial)
        for seed in self.plan.seeds:
            running.runs.append(SeedRun(self._job(algorithm, f"{trial.number:04}", seed), trial=running))
        self.runs.extend(running.runs)

    def _job(self, algorithm: Algorithm, folder: str, seed: int) -> Job:
        config = self.plan.config
        run = dataclasses.replace(config.run, seed=seed)
        config = dataclasses.replace(config, algorithm=algorithm, run=run)
        name, parent = run_name(algorithm, config.environment, seed), self.folder / TRIALS / folder
        spec = dataclasses.replace(self.plan.spec, algorithm=algorithm, options=run, runs_dir=parent, name=name)
        return Job(spec, config, self.folder / "workers.log", waits=True)

    # ------------------------------------------------------------------------------------------------ messages
    @override
    def _started(self, run: Any, evaluations: list[tuple[int, float]], step: int) -> None:
        run.first_step = run.step = step
        if step:
            self.on_event(f"{run.label(self.folder)}  resumes at step {step:,}")
        for at, mean_return in evaluations:
            if at:
                self._judge(run, at, mean_return)

    @override
    def _evaluated(self, run: Any, step: int, mean_return: float) -> None:
        self._judge(run, step, mean_return)
        if run.state == "working":
            self.pool.go(run.job)

    @override
    def _ended(self, run: Any, state: Any, how: str = "", reason: str = "", trace: str = "") -> None:
        trial = run.trial
        run.state = "stopped" if trial.verdict else state
        if how in (HINDERED, IN_USE):  # the same problem would stop the next trials
            self._stop()
            name = f"Trial {trial.trial.number}, seed {run.config.run.seed}"
            obstacle = f"{name}, was stopped. Remove the cause; the same call continues.\n{reason}\n{trace}".strip()
            self._obstacle = self._obstacle or obstacle
        elif state == "failed":
            self._end(trial, DIVERGED if how == DIVERGED else FAILED, f"{reason}\n{trace}".strip())
        self._conclude(trial)

    def _judge(self, run: SeedRun, step: int, mean_return: float) -> None:
        """Report a seed's score after an evaluation, and prune the trial if the sampler says so."""
        options, running = self.plan.config.run, run.trial
        # An evaluation may be a few steps late, but seeds are compared at the same steps.
        due = options.steps if step >= options.steps else step - step % options.evaluate_every
        run.evaluations[due] = mean_return
        value = score(run.evaluations, due, self.plan.window)
        number, key = running.trial.number, running.runs.index(run) * options.steps + due
        self.sampler.report(number, key, value)
        may_end = self.plan.prune_from is not None and self.plan.prune_from <= due < options.steps
        if may_end and not running.verdict and self.sampler.should_prune(number, key):
            self._end(running, "pruned", f"Seed {run.config.run.seed} had {value:.6g} at step {due:,}.")

    def _end(self, running: RunningTrial, verdict: str, reason: str) -> None:
        """Stop all runs of a trial; each writes a checkpoint. If the trial already has a verdict, keep that one."""
        if not running.verdict:
            running.verdict, running.reason = verdict, reason
        self._stop_runs(running.runs)
        for run in running.runs:
            if run.state == "waiting":
                run.state = "stopped"

    def _conclude(self, running: RunningTrial) -> None:
        """Record a trial's result once all of its runs have ended. A stopped trial has no result."""
        if any(run.is_at_work or run.state == "waiting" for run in running.runs):
            return
        if running.verdict:
            self._record(running.trial, running.verdict, reason=running.reason)
        elif all(run.state == "complete" for run in running.runs):
            last = self.plan.config.run.steps
            seeds = [score(run.evaluations, last, self.plan.window) for run in running.runs]
            self._record(running.trial, "complete", float(interquartile_mean(np.array(seeds))), tuple(seeds))

    def _record(
        self,
        trial: TrialRecord,
        state: str,
        value: float | None = None,
        seeds: tuple[float, ...] = (),
        reason: str = "",
    ) -> None:
        before = best_of(self.sampler.trials())
        self.sampler.end(trial.number, state, value, seeds, reason)
        tried = ", ".join(f"{name} {as_text(value)}" for name, value in trial.options.items())
        if value is None:
            line = f"trial {trial.number:>3}  {state}: {reason.splitlines()[0]}"
            if state != "pruned":
                self.notices.append(f"Trial {trial.number} {state}: {reason}\nIts options: {tried}")
        else:
            line = f"trial {trial.number:>3}  {value:.6g} (seeds {', '.join(f'{seed:.4g}' for seed in seeds)})"
            if before is None or value > (before.value or 0.0):
                line += f"  best so far\n          {tried}"
        self.on_event(line)

    # ------------------------------------------------------------------------------------------------ for a display
    @override
    def headline(self) -> str:
        plan, run, trials = self.plan, self.plan.config.run, self.sampler.trials()
        seeds = f"{len(plan.seeds)} seed{'s' * (len(plan.seeds) > 1)}"
        lines = [
            f"{plan.center.name()} on {plan.config.environment}, {run.backend} on {run.device}, around preset "
            f"{plan.config.preset}: {self.trials} trial{'s' * (self.trials > 1)} of {seeds}, {run.steps:,} steps each",
            f"searched: {', '.join(plan.space)}",
            f"{near(self.folder)}/",
        ]
        return "\n".join([*lines, *[f"Continuing after {counted(trials)}."] * bool(trials)])

    @override
    def status(self) -> list[str]:
        trials = self.sampler.trials()
        ended = [trial for trial in trials if trial.state != "running"]
        parts = [f"{len(ended)}/{self.trials} trials"]
        if best := best_of(trials):
            parts.append(f"best {best.value:.6g} (trial {best.number})")
        return [*parts, clock(time.monotonic() - self.started)]


def counted(trials: Iterable[TrialRecord]) -> str:
    """Return a text with the number of trials, in total and by state."""
    numbers = Counter(trial.state for trial in trials)
    return f"{sum(numbers.values())} trials: {', '.join(f'{number} {state}' for state, number in numbers.items())}"


def score(evaluations: Mapping[int, float], step: int, last: int) -> float:
    """Return a seed's score at `step`: the mean of the newest `last` evaluations up to this step."""
    until = [evaluations[at] for at in sorted(evaluations) if at <= step]
    return float(np.mean(until[-last:]))
