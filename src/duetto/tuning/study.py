"""A study at work.

    while trials remain:
        ask what to try next; train it with every seed, so many processes at a time
        after each evaluation that all its seeds have made: report their score, and prune the trial if it is hopeless
        at its end: tell its score, that it was pruned, or why it failed

A trial's seeds advance together, evaluation by evaluation, even if only one of them may work at a time: so a trial that
is pruned is pruned before any of its seeds has run to its end. The study's folder holds all there is to know:

    study.yaml      what is tuned, and by what: the same command goes on, another one is refused
    journal.jsonl   every trial, as Optuna keeps them
    trials/0007/    a trial's runs, one a seed, as `duetto train` makes them
    confirmed/0007/ those of the best with other seeds, if asked for
    workers.log     what environments print
"""

from __future__ import annotations

import dataclasses
import queue
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from duetto.algorithms import Algorithm
from duetto.errors import DuettoError, UsageError
from duetto.runs.job import DIVERGED, FAILED, HINDERED, IN_USE, Job
from duetto.runs.planning import run_name
from duetto.runs.workers import Worker, packed
from duetto.storage.config import Config
from duetto.training.interruption import interruptible
from duetto.training.notices import Notices
from duetto.tuning import scores
from duetto.tuning.optuna import Trial
from duetto.tuning.space import Space, applied, as_text

TRIALS = "trials"  # the folder of their runs, in the study's
ASKED = [int(getattr(signal, name)) for name in ("SIGHUP", "SIGINT", "SIGTERM") if hasattr(signal, name)]
LOOK = 0.2  # seconds between two looks at whether it shall stop
PUT_OFF = "put off"  # a trial that is not recorded as ended: the same call takes it up
RUNS = 20  # that one process trains, before another takes its place: what they leave behind in it does not add up


@dataclass(frozen=True)
class Plan:
    """The plan of a study: what is tuned, and how."""

    config: Config  # of the centre, with the first seed
    environment: Any
    space: Space
    seeds: int
    prune: bool

    @property
    def centre(self) -> Algorithm:
        """The algorithm, with the options that the search is around."""
        return self.config.algorithm

    @property
    def window(self) -> int:
        """See `scores.window`."""
        return scores.window(self.config.run.steps, self.config.run.evaluate_every)

    @property
    def prune_from(self) -> int | None:
        """Steps before which no trial is pruned: a fifth of all, or more until learning has begun; None: never."""
        steps, algorithm = self.config.run.steps, self.centre
        first, _ = algorithm.memory().first_update(self.config.run.num_envs)
        return max(steps // 5, first, algorithm.first_random_steps()) if self.prune else None

    def start(self) -> dict[str, Any]:
        """The centre's values of the options that are searched."""
        return {name: getattr(self.centre, name) for name in self.space}


class Asked(Protocol):
    """The part of an optimiser that a study uses; see `Optimizer`."""

    def ask(self) -> Trial:
        """Draw the next trial."""
        ...

    def unfinished(self) -> list[Trial]:
        """The trials of an earlier process that were not ended."""
        ...

    def trial(self, number: int) -> Trial:
        """The trial of a number."""
        ...

    def trials(self) -> list[Trial]:
        """All trials that were begun."""
        ...

    def report(self, number: int, step: int, score: float) -> None:
        """Record a trial's score after so many steps."""

    def is_hopeless(self, number: int) -> bool:
        """Whether a trial should be pruned."""
        ...

    def end(
        self, number: int, state: str, value: float | None = None, seeds: tuple[float, ...] = (), reason: str = ""
    ) -> None:
        """Record a trial's end."""


@dataclass
class SeedRun:
    """The run of one seed of a trial."""

    job: Job
    state: Literal["new", "working", "waiting", "stopping", "over"] = "new"
    worker: Worker | None = None
    evaluations: dict[int, float] = field(default_factory=dict)  # mean returns by when they were due, but for step 0


@dataclass
class Trying:
    """A trial at work."""

    trial: Trial
    runs: list[SeedRun]
    taken_up: bool  # half of it was there
    verdict: str = ""  # "pruned", "diverged", "failed" or PUT_OFF
    reason: str = ""

    def common(self) -> list[int]:
        """The steps at which every seed was evaluated."""
        return sorted(set.intersection(*(set(run.evaluations) for run in self.runs)))


class Study:
    """A study at work: the loop over its trials. Nothing else writes into its folder meanwhile.

    Attributes:
        trying: The trials at work, in order.
        notices: Sentences for the user, in order.
        stopped: Whether it ended, or is about to end, before its last trial, as it was asked to or was hindered.
    """

    plan: Plan
    folder: Path
    optimizer: Asked
    trials: int
    jobs: int
    stopped: bool

    def __init__(self, plan: Plan, folder: Path, optimizer: Asked, trials: int, jobs: int, runs: str = TRIALS) -> None:
        """`runs` is the name of the folder, in the study's, that the trials' runs go to."""
        self.plan, self.folder, self.optimizer = plan, folder, optimizer
        self.runs: Path = folder / runs
        self.trials, self.jobs = trials, jobs
        self.trying: list[Trying] = []
        self.notices: Notices = Notices()
        self.stopped = False
        self._hindrance = ""
        self.began: float = time.monotonic()
        self.on_end: Callable[[Trial], None] = lambda _: None  # whoever shows the study
        self.on_look: Callable[[], None] = lambda: None
        self._inbox: queue.Queue[tuple[Worker, tuple[Any, ...]]] = queue.Queue()
        self._idle: list[Worker] = []
        self._hired: list[Worker] = []

    # ------------------------------------------------------------------------------------------------ the loop
    def work(self) -> None:
        """Work to the end of the last trial, or until Ctrl-C.

        Raises DuettoError if what is around the runs hinders them, such as a full disk. No trial is used up by that.
        """
        packed(self._job(self.plan.centre, "", 0))  # what cannot be sent shows now
        self.trying = [self._tried(trial, taken_up=True) for trial in self.optimizer.unfinished()]
        with interruptible(self._stop):
            try:
                while self._go_on():
                    try:
                        worker, message = self._inbox.get(timeout=LOOK)
                    except queue.Empty:
                        pass
                    else:
                        self._hear(worker, *message)
                    self.on_look()
                for worker in list(self._hired):
                    worker.close()
            except BaseException:
                for worker in self._hired:
                    worker.kill()
                raise
        if self._hindrance:
            raise DuettoError(self._hindrance)

    def _stop(self) -> None:
        self.stopped = True

    def _go_on(self) -> bool:
        """Give work to as many processes as there may be; return whether any trial is at work."""
        if self.stopped:
            for trying in list(self.trying):
                self._end_runs(trying)
            return bool(self.trying)
        while sum(run.state in ("working", "stopping") for run in self._runs()) < self.jobs:
            ready = [(trying, run) for trying in self.trying for run in trying.runs if run.state in ("new", "waiting")]
            if ready:  # of the oldest trial, the one that is furthest behind
                _, run = min(ready, key=lambda one: (one[0].trial.number, len(one[1].evaluations)))
                self._let_work(run)
            elif len(self.optimizer.trials()) < self.trials:
                self._begin(self.optimizer.ask())
            else:
                break
        return bool(self.trying)

    def _runs(self) -> list[SeedRun]:
        return [run for trying in self.trying for run in trying.runs]

    # ------------------------------------------------------------------------------------------------ one trial
    def _begin(self, trial: Trial) -> None:
        self.trying.append(self._tried(trial, taken_up=False))

    def _tried(self, trial: Trial, taken_up: bool) -> Trying:
        """The trial with a run for each seed; one whose options do not go together has failed, and none begins."""
        try:
            algorithm = applied(self.plan.centre, trial.options)
        except UsageError as error:
            return Trying(trial, [SeedRun(self._job(self.plan.centre, "", 0))], taken_up, FAILED, str(error))
        where = f"{trial.number:04}"
        runs = [SeedRun(self._job(algorithm, where, number)) for number in range(self.plan.seeds)]
        return Trying(trial, runs, taken_up)

    def _job(self, algorithm: Algorithm, where: str, number: int) -> Job:
        config = self.plan.config
        run = dataclasses.replace(config.run, seed=config.run.seed + number)
        config = dataclasses.replace(config, algorithm=algorithm, run=run)
        name = run_name(algorithm, config.environment, run.seed)
        return Job.of(config, self.plan.environment, self.runs / where, name, waits=True)

    def _let_work(self, run: SeedRun) -> None:
        trying = next(one for one in self.trying if run in one.runs)
        if trying.verdict:  # refused before it began
            run.state = "over"
            self._conclude(trying)
            return
        if run.worker is not None:
            run.state = "working"
            run.worker.go()
            return
        run.worker = self._idle.pop() if self._idle else self._hire()
        run.state = "working"
        run.worker.train(run.job)

    def _hire(self) -> Worker:
        worker = Worker(self._inbox, self.folder / "workers.log")
        self._hired.append(worker)
        return worker

    def _end_runs(self, trying: Trying) -> None:
        """Let all of a trial's runs end, with checkpoints."""
        for run in trying.runs:
            if run.state in ("working", "waiting"):
                assert run.worker is not None
                run.state = "stopping"
                run.worker.stop()
            elif run.state == "new":
                run.state = "over"
        self._conclude(trying)

    # ------------------------------------------------------------------------------------------------ what is heard
    def _due(self, step: int) -> int:
        """The step at which the evaluation made at `step` was due: runs of other seeds or trials may have made other
        numbers of steps by then, but all have evaluated as often.
        """
        options = self.plan.config.run
        return options.steps if step >= options.steps else step - step % options.evaluate_every

    def _hear(self, worker: Worker, kind: str, *told: Any) -> None:
        found = [(trying, run) for trying in self.trying for run in trying.runs if run.worker is worker]
        if not found:  # an idle process that is gone
            self._dismiss(worker)
            return
        ((trying, run),) = found
        if kind == "started":
            self._note_beginning(trying, run, *told)
        elif kind == "evaluated":
            step, mean_return = told
            run.evaluations[self._due(step)] = mean_return
            if run.state == "working":
                run.state = "waiting"
            self._judge(trying)
        else:
            self._note_end(trying, run, worker, kind, *told)

    def _note_beginning(
        self, trying: Trying, run: SeedRun, evaluations: Sequence[tuple[int, float]], step: int
    ) -> None:
        run.evaluations = {self._due(at): mean_return for at, mean_return in evaluations if at > 0}
        if trying.taken_up:
            how = f"goes on at step {step:,}" if step else "begins again at step 0"
            self.notices.append(f"Trial {trying.trial.number}, seed {run.job.run.seed}, {how}.")
        self._judge(trying)

    def _note_end(self, trying: Trying, run: SeedRun, worker: Worker, kind: str, *told: Any) -> None:
        stopping, run.state, run.worker = run.state == "stopping", "over", None
        short = max(run.evaluations, default=0) < self.plan.config.run.steps
        if kind == "gone":
            self._dismiss(worker)
            if -told[0] in ASKED:
                if short and not trying.verdict:
                    self._put_off(trying, run)
            else:
                log = self.folder / "workers.log"
                self._fail(trying, FAILED, f"Its process ended with the code {told[0]}; see {log}.")
        else:
            self._rest(worker)
        if kind == "failed":
            how, *why = told
            if how in (HINDERED, IN_USE):
                self._halt(trying, run, *why)
            else:
                self._fail(trying, DIVERGED if how == DIVERGED else FAILED, "\n".join(why).strip())
        elif kind == "ended":
            self.notices.hear(f"Trial {trying.trial.number}, seed {run.job.run.seed}", told[1], run.job.folder)
        if kind == "ended" and not stopping and short and not trying.verdict:
            self._put_off(trying, run)
        self._conclude(trying)

    def _put_off(self, trying: Trying, run: SeedRun) -> None:
        """End the trial of a run that a signal ended, without a verdict; this process may get it a moment later."""
        self.notices.append(
            f"Trial {trying.trial.number}: seed {run.job.run.seed} was stopped from outside. The same call takes it up."
        )
        self._end_runs(trying)

    def _halt(self, trying: Trying, run: SeedRun, sentence: str, trace: str) -> None:
        """Stop the study, since the next trials would be hindered, too; this one is not to blame."""
        self.stopped = True
        self._hindrance = self._hindrance or (
            f"Trial {trying.trial.number}, seed {run.job.run.seed}, was hindered. Once that is put right, the same "
            f"call goes on with it.\n{sentence}\n{trace}".strip()
        )
        self._fail(trying, PUT_OFF, "")

    def _rest(self, worker: Worker) -> None:
        if worker.runs < RUNS:
            self._idle.append(worker)
        else:
            self._dismiss(worker)

    def _dismiss(self, worker: Worker) -> None:
        if worker not in self._hired:  # its last word, "gone"
            return
        self._hired.remove(worker)
        if worker in self._idle:
            self._idle.remove(worker)
        worker.close()

    def _fail(self, trying: Trying, how: str, reason: str) -> None:
        if not trying.verdict:
            trying.verdict, trying.reason = how, reason
        self._end_runs(trying)

    def _judge(self, trying: Trying) -> None:
        """Report the scores of all evaluations that every seed has made, and prune the trial if it is hopeless."""
        number, common = trying.trial.number, trying.common()
        for step in common:
            self.optimizer.report(number, step, scores.interquartile_mean(self._scores(trying, step)))
        final = bool(common) and common[-1] >= self.plan.config.run.steps
        if common and not final and not trying.verdict and self.optimizer.is_hopeless(number):
            trying.verdict = "pruned"
            self._end_runs(trying)

    def _scores(self, trying: Trying, step: int) -> list[float]:
        return [scores.score(run.evaluations, step, self.plan.window) for run in trying.runs]

    def _conclude(self, trying: Trying) -> None:
        """Record a trial's end, once all of its runs have ended. One that was stopped halfway can be resumed later."""
        if trying not in self.trying or any(run.state != "over" for run in trying.runs):
            return
        self.trying.remove(trying)
        number, common = trying.trial.number, trying.common()
        if trying.verdict == PUT_OFF:
            return
        if trying.verdict:
            self.optimizer.end(number, trying.verdict, reason=trying.reason)
            if trying.reason:
                tried = ", ".join(f"{name} {as_text(value)}" for name, value in trying.trial.options.items())
                self.notices.append(f"Trial {number} {trying.verdict}: {trying.reason}\nIts options: {tried}")
        elif common and common[-1] >= self.plan.config.run.steps:
            seeds = self._scores(trying, common[-1])
            self.optimizer.end(number, "complete", scores.interquartile_mean(seeds), tuple(seeds))
        else:
            return
        self.on_end(self.optimizer.trial(number))
