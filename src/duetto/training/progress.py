"""The progress of a run: two lines that change if a person watches, plain lines elsewhere."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Console

from duetto.errors import UsageError, near, to_resume
from duetto.storage import user_code
from duetto.storage.logs import Csv
from duetto.training.notices import shown_elsewhere
from duetto.training.progress_lines import LINE_SECONDS, LiveDisplay, clock

if TYPE_CHECKING:  # it takes a second to import, and something is to be seen before that
    from pathlib import Path

    from duetto.training.trainer import Trainer

REFRESH_SECONDS = 0.5


class ProgressDisplay(LiveDisplay):
    """A callback that shows steps/s, time left, the last evaluation, the training return and the critic's loss.

    Before the first step it shows what is being done until then, and how many updates of pre-training are left.
    """

    def __init__(self, console: Console, quiet: bool = False) -> None:
        super().__init__(console, quiet)
        self._next = self._next_line = 0.0
        self._rate: float | None = None
        self._first_step = 0
        self._counting = False  # whether the row's samples began after the last evaluation
        self.trainers: list[Trainer] = []
        self._shown_evaluation: object = None
        self._complete = False
        self._results: list[str] = []

    def __exit__(self, *raised: Any) -> None:
        self._activity = ""
        self._progress.live.transient = not self.trainers  # the lines of the preparations are removed
        super().__exit__(*raised)

    def doing(self, text: str) -> None:
        """Show an activity, and news of the run; "" for the run itself."""
        self._show_news()
        super().doing(text)

    def _begin(self, trainers: Sequence[Trainer]) -> None:
        self.trainers, self._activity = list(trainers), ""
        for trainer in trainers:
            trainer.on_activity = self.doing

    def announce(self, trainer: Trainer) -> None:
        """Show the first lines: what runs where."""
        self._begin([trainer])
        # it may begin behind where another trainer of the run was, whose notices and times are not its own
        self._counting = False
        self._noticed, self._shown_evaluation = 0, trainer.last_evaluation
        options, config = trainer.config.run, trainer.config
        self._complete = trainer.step >= options.steps
        self.say(
            f"{config.algorithm.name()} on {config.environment}, {options.backend} on {options.device}, "
            f"seed {options.seed}, preset {config.preset}, {options.steps:,} steps\n{near(trainer.folder)}/",
        )
        if trainer.step:
            self.say(f"Resuming at step {trainer.step:,}.")
        if "time/actors" in trainer.stepper.engine.numbers():  # Ray ends a process whose raylet dies, without a word
            self.say(f"If the cluster fails and ends this process, continue with: {to_resume(trainer.folder)}")
        self._show_notices(trainer.notices)

    def __call__(self, trainer: Trainer) -> None:
        """Update the display after a step; cheap unless it is time to look."""
        now = time.perf_counter()
        self._activity, self.trainers = "", self.trainers or [trainer]
        self._show_news()
        if self._counting and now < self._next and trainer.step < trainer.config.run.steps:
            return
        self._next = now + REFRESH_SECONDS
        trainers, config = self.trainers, trainer.config
        several = f" × {len(trainers)} seeds" if len(trainers) > 1 else ""
        self._results = self._learned(trainers)
        made = self._count(
            f"{config.algorithm.name()} {user_code.short(config.environment)}{several}",
            sum(one.step for one in trainers),
            sum(one.config.run.steps for one in trainers),
        )
        self._refresh()
        if not self._live_lines and now >= self._next_line and (made or trainer.memory.pretraining_left):
            self._next_line = now + LINE_SECONDS
            rate = f"{self._rate or 0:,.0f} steps/s{' of all seeds' * bool(several)}"
            self.say("  ".join([f"step {trainer.step:>9,}", rate, *self._results]))

    def _count(self, name: str, step: int, steps: int) -> bool:
        """Update the row; return whether steps were made since the samples of the rate began."""
        row = self._row(name, step, steps)
        if not self._counting:  # an evaluation's time is not the steps'
            self._progress.reset(row, completed=step)
            self._progress.advance(row, 0)  # the first sample, from which the rate is measured
            self._counting, self._first_step = True, step
        self._rate = self._progress.tasks[0].speed or self._rate
        left = max(0, steps - step) / self._rate if self._rate else None
        note = "- steps/s" if self._rate is None else f"{self._rate:,.0f} steps/s"
        self._row(name, step, steps, note=note, left=clock(0.0 if step >= steps else left))
        return step > self._first_step

    def _status(self) -> list[str]:
        return self._results

    def finish(self, path: Path) -> None:
        """Show the last lines: done, or stopped and how to go on."""
        [trainer] = self.trainers
        self._show_news()
        if trainer.stopped:
            self.say(f"Stopped at step {trainer.step:,}. Go on with: {to_resume(path)}")
            return
        if self._complete:
            self.say("Nothing was left to do: all steps are made. More of them, --steps N, go on.")
        if last := self._last_evaluation(trainer):
            self.say(f"Last evaluation: {last}")
        self.say(f"{trainer.step:,} steps and {trainer.learner.updates:,} updates in {clock(trainer.seconds)}.")
        if _can_be_recorded(trainer):
            self.say(f"See it: duetto video {near(path)}")

    def _last_evaluation(self, trainer: Trainer) -> str:
        """The last evaluation's result as text, also if an earlier process made it; "" if there is none."""
        if trainer.last_evaluation is not None:
            return str(trainer.last_evaluation[1])
        rows = self._earlier(trainer)
        return f"mean return {float(rows[-1]['mean_return']):.1f} at step {rows[-1]['step']}" if rows else ""

    def _earlier(self, trainer: Trainer) -> list[dict[str, str]]:
        """The rows of evaluations by an earlier process, if the run was complete already; else none."""
        return Csv.scan(trainer.folder / "evaluations.csv").rows if self._complete else []

    def summary(self, path: object) -> dict[str, object]:
        """The last lines as JSON values."""
        [trainer] = self.trainers
        return self._summary(trainer, path)

    def _summary(self, trainer: Trainer, path: object) -> dict[str, object]:
        last = trainer.last_evaluation
        rows = self._earlier(trainer) if last is None else []
        evaluation = {"step": int(rows[-1]["step"]), "mean_return": float(rows[-1]["mean_return"])} if rows else None
        return {
            "run": str(path),
            "step": trainer.step,
            "updates": trainer.learner.updates,
            "seconds": round(trainer.seconds, 3),
            "stopped": trainer.stopped,
            "evaluation": evaluation if last is None else {"step": last[0], **last[1].to_dict()},
            "notices": list(trainer.notices),
        }

    def _show_news(self) -> None:
        """Show a new evaluation and new notices, also while something else takes long."""
        for trainer in self.trainers:
            if trainer.last_evaluation is not self._shown_evaluation:
                self._shown_evaluation = trainer.last_evaluation
                step, result = trainer.last_evaluation or (0, None)
                self.say(f"step {step:>9,}  evaluation {result}")
                self._counting = False
            self._show_notices(trainer.notices)

    def _learned(self, trainers: Sequence[Trainer]) -> list[str]:
        """Return the parts of the status line: means over the trainers, with a deviation if there are several."""
        parts: list[str] = []
        if left := trainers[0].memory.pretraining_left:
            parts.append(f"pre-training: {left:,} updates left")
        numbers = trainers[0].stepper.engine.numbers()
        if "time/actors" in numbers:
            parts.append(_actors(numbers))
        if returns := evaluated(trainers):
            parts.append(f"evaluation {spread(returns)}")
        training = [one.log.recent_return for one in trainers if one.log.recent_return is not None]
        if training:
            parts.append(f"training {spread(training)}")
        losses = [one.log.last_line.get("learn/critic_loss") for one in trainers]
        if found := [loss for loss in losses if loss is not None]:
            parts.append(f"critic loss {statistics.fmean(found):,.3g}")
        return parts


def evaluated(trainers: Sequence[Trainer]) -> list[float]:
    """Return the mean returns of the trainers' last evaluations."""
    return [one.last_evaluation[1].mean_return for one in trainers if one.last_evaluation is not None]


def spread(values: Sequence[float]) -> str:
    """Format one value as it is, several as mean ± standard deviation."""
    deviation = f" ± {statistics.pstdev(values):,.1f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):,.1f}{deviation}"


def _actors(numbers: Mapping[str, float]) -> str:
    """Format the state of a cluster: actors, restarts, and how many updates old the actors' parameters are."""
    restarts, lag = numbers["time/actor_restarts"], numbers.get("time/lag_updates_mean")
    restarted = f", {restarts:.0f} restarted" if restarts else ""
    return f"{numbers['time/actors']:.0f} actors{restarted}{'' if lag is None else f', lag {lag:.0f}'}"


def _can_be_recorded(trainer: Trainer) -> bool:
    """Return whether the environment renders frames; for EnvPool, whether Gymnasium has its id."""
    from duetto import environments

    config = trainer.config
    modes = (trainer.stepper.engine.metadata or {}).get("render_modes")
    if modes is not None and "rgb_array" not in modes:
        return False
    if config.run.engine != "envpool" or config.run.evaluate_every:
        return True
    try:
        environments.make_eval(config.environment, render_mode="rgb_array", kwargs=config.environment_options).close()
    except UsageError:
        return False
    return True


Display = TypeVar("Display", bound=ProgressDisplay)


@contextmanager
def shown(
    console: Console, beginning: str, quiet: bool = False, kind: type[Display] = ProgressDisplay
) -> Iterator[Display]:
    """Yield a progress display, which shows `beginning` until the run is announced.

    A UsageError in a run with checkpoints gets a sentence on how to go on.
    """
    with shown_elsewhere(), kind(console, quiet) as display:
        display.doing(beginning)
        try:
            yield display
        except UsageError as error:  # the other errors of a run say it themselves
            if not display.trainers or not display.trainers[0].checkpoints.store.steps():
                raise
            raise UsageError(f"{error}\nThen go on with: {to_resume(display.trainers[0].folder)}") from error
