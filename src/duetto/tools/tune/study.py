"""The loop of a study.

    while trials remain:
        ask which options to try next; train them with every seed, so many processes at a time
        after each evaluation that all seeds have made: report the score, and prune the trial if it is hopeless
        at the trial's end: tell its score, that it was pruned, or why it failed

A trial's seeds advance together, evaluation by evaluation, even in one process: so a trial that is pruned is pruned
before any of its seeds has made all its steps. The study's folder contains everything that the loop needs to continue:

    study.yaml      what is tuned, and how: the same command continues it, another one is refused
    journal.jsonl   every trial, as Optuna keeps them
    trials/0007/    a trial's runs, one for each seed, as `duetto train` makes them
    workers.log     the output of environments
"""

from __future__ import annotations

import dataclasses
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from duetto.algorithms import Algorithm
from duetto.errors import DuettoError, UsageError
from duetto.runs.pool import ProcessPool
from duetto.runs.spec import run_name
from duetto.runs.worker import DIVERGED, FAILED, HINDERED, IN_USE, Job, pack
from duetto.storage import safe_open
from duetto.tools.plot import curves
from duetto.tools.tune.plan import Plan
from duetto.tools.tune.sampler import FinishedTrial, Sampler
from duetto.tools.tune.space import applied, as_text
from duetto.training.notices import Notices
from duetto.training.signals import interruptible

TRIALS = "trials"  # the folder of their runs, in the study's
STOP_SIGNALS = [int(getattr(signal, name)) for name in ("SIGHUP", "SIGINT", "SIGTERM") if hasattr(signal, name)]
POLL_SECONDS = 0.2  # between two checks whether to stop
PUT_OFF = "put off"  # not recorded as ended: the same call continues the trial
MAX_RUNS = 20  # in one process, so that leaked memory does not add up


@dataclass
class SeedRun:
    """The run of one seed of a trial."""

    job: Job
    state: Literal["new", "working", "waiting", "stopping", "over"] = "new"
    evaluations: dict[int, float] = field(default_factory=dict)  # mean returns by due step, without step 0


@dataclass
class RunningTrial:
    """A trial at work."""

    trial: FinishedTrial
    runs: list[SeedRun]
    is_resumed: bool
    verdict: str = ""  # "pruned", "diverged", "failed" or PUT_OFF
    reason: str = ""

    @property
    def number(self) -> int:
        """The trial's number."""
        return self.trial.number

    def common_steps(self) -> list[int]:
        """Return the steps at which every seed was evaluated."""
        return sorted(set.intersection(*(set(run.evaluations) for run in self.runs)))


class Study:
    """A study at work: the loop over its trials. Nothing else writes into its folder meanwhile.

    Attributes:
        running: The trials at work, in order.
        notices: Sentences for the user, in order.
        stopped: Whether it was asked to end before its last trial, or was hindered.
    """

    plan: Plan
    folder: Path
    sampler: Sampler
    trials: int
    jobs: int
    stopped: bool

    def __init__(self, plan: Plan, folder: Path, sampler: Sampler, trials: int, jobs: int) -> None:
        self.plan, self.folder, self.sampler = plan, folder, sampler
        self.runs: Path = folder / TRIALS
        safe_open.check_folders([self.runs, *self.runs.glob("*"), *self.runs.glob("*/*")])
        self.trials, self.jobs = trials, jobs
        self.running: list[RunningTrial] = []
        self.notices: Notices = Notices()
        self.stopped = False
        self._hindrance = ""
        self.started: float = time.monotonic()
        self.on_end: Callable[[FinishedTrial], None] = lambda _: None  # for a display
        self.on_poll: Callable[[], None] = lambda: None
        self.log: Path = folder / "workers.log"
        self._pool = ProcessPool(jobs, lambda _: self.log, MAX_RUNS)

    # ------------------------------------------------------------------------------------------------ the loop
    def work(self) -> None:
        """Work to the end of the last trial, or until Ctrl-C.

        Raises DuettoError if something outside the runs hinders them, such as a full disk. The trial continues later.
        """
        pack(self._job(self.plan.center, "", 0))  # raises if it cannot be sent to a process
        for trial in self.sampler.unfinished():
            self._start(trial, is_resumed=True)
        with interruptible(self._stop):
            try:
                while self._remains():
                    for job, message in self._pool.wait(POLL_SECONDS):
                        self._receive(job, *message)
                    self.on_poll()
            finally:
                self._pool.close()
        if self._hindrance:
            raise DuettoError(self._hindrance)

    def _stop(self) -> None:
        self.stopped = True

    def _remains(self) -> bool:
        """Let as many processes work as may; return whether any trial is at work."""
        if self.stopped:
            for running in list(self.running):
                self._end_runs(running)
            return bool(self.running)
        while self._pool.room():
            ready = [
                (trial.number, len(run.evaluations), index, run)
                for trial in self.running
                for index, run in enumerate(trial.runs)
                if run.state in ("new", "waiting")
            ]
            if ready:  # of the oldest trial, the run with the fewest evaluations
                self._let_work(min(ready)[-1])
            elif len(self.sampler.trials()) < self.trials:
                self._start(self.sampler.ask(), is_resumed=False)
            else:
                break
        return bool(self.running)

    # ------------------------------------------------------------------------------------------------ one trial
    def _start(self, trial: FinishedTrial, is_resumed: bool) -> None:
        """Add a run for each seed of a trial; if its options do not fit together, it has failed."""
        try:
            algorithm = applied(self.plan.center, trial.options)
        except UsageError as error:
            self._record(trial, FAILED, reason=str(error))
            return
        runs = [SeedRun(self._job(algorithm, f"{trial.number:04}", seed)) for seed in self.plan.seeds]
        self.running.append(RunningTrial(trial, runs, is_resumed))

    def _job(self, algorithm: Algorithm, folder: str, seed: int) -> Job:
        config = self.plan.config
        run = dataclasses.replace(config.run, seed=seed)
        config = dataclasses.replace(config, algorithm=algorithm, run=run)
        name = run_name(algorithm, config.environment, seed)
        spec = dataclasses.replace(
            self.plan.spec, algorithm=algorithm, options=run, runs_dir=self.runs / folder, name=name
        )
        return Job(spec, config, waits=True)

    def _let_work(self, run: SeedRun) -> None:
        act = self._pool.go if run.state == "waiting" else self._pool.start
        run.state = "working"
        act(run.job)

    def _end_runs(self, running: RunningTrial, verdict: str = "", reason: str = "") -> None:
        """Let all of a trial's runs end, with checkpoints. The first verdict counts."""
        if not running.verdict:
            running.verdict, running.reason = verdict, reason
        for run in running.runs:
            if run.state in ("working", "waiting"):
                run.state = "stopping"
                self._pool.stop(run.job)
            elif run.state == "new":
                run.state = "over"
        self._conclude(running)

    # ------------------------------------------------------------------------------------------------ messages
    def _receive(self, job: Job, kind: str, *details: Any) -> None:
        running, run = next((running, run) for running in self.running for run in running.runs if run.job is job)
        if kind == "started":
            evaluations, step = details
            run.evaluations = {self._due(at): mean_return for at, mean_return in evaluations if at > 0}
            if running.is_resumed:
                how = f"resumes at step {step:,}" if step else "starts again at step 0"
                self.notices.append(f"{_name(running, run)}, {how}.")
            self._judge(running)
        elif kind == "evaluated":
            step, mean_return = details
            run.evaluations[self._due(step)] = mean_return
            if run.state == "working":
                run.state = "waiting"
            self._judge(running)
        else:
            self._receive_end(running, run, kind, *details)

    def _due(self, step: int) -> int:
        """Return the step at which the evaluation made at `step` was due.

        Runs may evaluate a few steps later; all evaluate equally often.
        """
        options = self.plan.config.run
        return options.steps if step >= options.steps else step - step % options.evaluate_every

    def _receive_end(self, running: RunningTrial, run: SeedRun, kind: str, *details: Any) -> None:
        was_stopping, run.state = run.state == "stopping", "over"
        by_signal = kind == "ended" and not was_stopping
        if kind == "gone":
            by_signal = -details[0] in STOP_SIGNALS
            if not by_signal:
                self._end_runs(running, FAILED, f"Its process ended with the code {details[0]}; see {self.log}.")
        if kind == "failed":
            how, *reason = details
            if how in (HINDERED, IN_USE):
                self._halt(running, run, "\n".join(reason).strip())
            else:
                self._end_runs(running, DIVERGED if how == DIVERGED else FAILED, "\n".join(reason).strip())
        elif kind == "ended":
            self.notices.hear(_name(running, run), details[1], run.job.folder)
        is_short = max(run.evaluations, default=0) < self.plan.config.run.steps
        if by_signal and is_short and not running.verdict:  # this process may get the signal a moment later
            self.notices.append(f"{_name(running, run)}, was stopped by a signal. The same call continues it.")
            self._end_runs(running, PUT_OFF)
        self._conclude(running)

    def _halt(self, running: RunningTrial, run: SeedRun, reason: str) -> None:
        """Stop the study, since the next trials would be hindered by the same."""
        self.stopped = True
        hindrance = f"{_name(running, run)}, was hindered. Remove the cause; the same call continues.\n{reason}"
        self._hindrance = self._hindrance or hindrance
        self._end_runs(running, PUT_OFF)

    # ------------------------------------------------------------------------------------------------ scores
    def _judge(self, running: RunningTrial) -> None:
        """Report the scores of all evaluations that every seed has made, and prune the trial if it is hopeless."""
        steps = running.common_steps()
        for step in steps:
            self.sampler.report(running.number, step, interquartile_mean(self._scores(running, step)))
        is_final = bool(steps) and steps[-1] >= self.plan.config.run.steps
        if steps and not is_final and not running.verdict and self.sampler.should_prune(running.number):
            self._end_runs(running, "pruned")

    def _scores(self, running: RunningTrial, step: int) -> list[float]:
        return [score(run.evaluations, step, self.plan.window) for run in running.runs]

    def _conclude(self, running: RunningTrial) -> None:
        """Record a trial's end, once all of its runs have ended, unless it can be continued."""
        if running not in self.running or any(run.state != "over" for run in running.runs):
            return
        self.running.remove(running)
        steps = running.common_steps()
        if running.verdict == PUT_OFF:
            return
        if running.verdict:
            self._record(running.trial, running.verdict, reason=running.reason)
        elif steps and steps[-1] >= self.plan.config.run.steps:
            seeds = self._scores(running, steps[-1])
            self._record(running.trial, "complete", interquartile_mean(seeds), tuple(seeds))

    def _record(
        self,
        trial: FinishedTrial,
        state: str,
        value: float | None = None,
        seeds: tuple[float, ...] = (),
        reason: str = "",
    ) -> None:
        self.sampler.end(trial.number, state, value, seeds, reason)
        if reason:
            options = ", ".join(f"{name} {as_text(value)}" for name, value in trial.options.items())
            self.notices.append(f"Trial {trial.number} {state}: {reason}\nIts options: {options}")
        self.on_end(self.sampler.trial(trial.number))


def _name(running: RunningTrial, run: SeedRun) -> str:
    return f"Trial {running.number}, seed {run.job.spec.options.seed}"


def score(evaluations: Mapping[int, float], step: int, last: int) -> float:
    """Return a seed's score at `step`: the mean of its `last` evaluations until then, without that of step 0."""
    until = [evaluations[at] for at in sorted(evaluations) if at <= step]
    return float(np.mean(until[-last:]))


def interquartile_mean(values: Sequence[float]) -> float:
    """Return the interquartile mean, as `duetto plot` draws it; of three seeds or fewer the mean."""
    return float(curves.interquartile_mean(np.asarray(values, np.float64)))
