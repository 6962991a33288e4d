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

    from duetto.training.session import Session

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
        self.sessions: list[Session] = []
        self._shown_evaluation: object = None
        self._complete = False
        self._results: list[str] = []

    def __exit__(self, *raised: Any) -> None:
        self._activity = ""
        self._progress.live.transient = not self.sessions  # the lines of the preparations are removed
        super().__exit__(*raised)

    def doing(self, text: str) -> None:
        """Show an activity, and news of the run; "" for the run itself."""
        self._show_news()
        super().doing(text)

    def _begin(self, sessions: Sequence[Session]) -> None:
        self.sessions, self._activity = list(sessions), ""
        for session in sessions:
            session.on_activity = self.doing

    def announce(self, session: Session) -> None:
        """Show the first lines: what runs where."""
        self._begin([session])
        # it may begin behind where another session of the run was, whose notices and times are not its own
        self._counting = False
        self._noticed, self._shown_evaluation = 0, session.last_evaluation
        options, config = session.config.run, session.config
        self._complete = session.step >= options.steps
        self.say(
            f"{config.algorithm.name()} on {config.environment}, {options.backend} on {options.device}, "
            f"seed {options.seed}, preset {config.preset}, {options.steps:,} steps\n{near(session.folder)}/",
        )
        if session.step:
            self.say(f"Resuming at step {session.step:,}.")
        if "time/actors" in session.stepper.engine.numbers():  # Ray ends a process whose raylet dies, without a word
            self.say(f"If the cluster fails and ends this process, continue with: {to_resume(session.folder)}")
        self._show_notices(session.notices)

    def __call__(self, session: Session) -> None:
        """Update the display after a step; cheap unless it is time to look."""
        now = time.perf_counter()
        self._activity, self.sessions = "", self.sessions or [session]
        self._show_news()
        if self._counting and now < self._next and session.step < session.config.run.steps:
            return
        self._next = now + REFRESH_SECONDS
        sessions, config = self.sessions, session.config
        several = f" × {len(sessions)} seeds" if len(sessions) > 1 else ""
        self._results = self._learned(sessions)
        made = self._count(
            f"{config.algorithm.name()} {user_code.short(config.environment)}{several}",
            sum(one.step for one in sessions),
            sum(one.config.run.steps for one in sessions),
        )
        self._refresh()
        if not self._live_lines and now >= self._next_line and (made or session.memory.pretraining_left):
            self._next_line = now + LINE_SECONDS
            rate = f"{self._rate or 0:,.0f} steps/s{' of all seeds' * bool(several)}"
            self.say("  ".join([f"step {session.step:>9,}", rate, *self._results]))

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
        [session] = self.sessions
        self._show_news()
        if session.stopped:
            self.say(f"Stopped at step {session.step:,}. Go on with: {to_resume(path)}")
            return
        if self._complete:
            self.say("Nothing was left to do: all steps are made. More of them, --steps N, go on.")
        if last := self._last_evaluation(session):
            self.say(f"Last evaluation: {last}")
        self.say(f"{session.step:,} steps and {session.learner.updates:,} updates in {clock(session.seconds)}.")
        if _can_be_recorded(session):
            self.say(f"See it: duetto video {near(path)}")

    def _last_evaluation(self, session: Session) -> str:
        """The last evaluation's result as text, also if an earlier process made it; "" if there is none."""
        if session.last_evaluation is not None:
            return str(session.last_evaluation[1])
        rows = self._earlier(session)
        return f"mean return {float(rows[-1]['mean_return']):.1f} at step {rows[-1]['step']}" if rows else ""

    def _earlier(self, session: Session) -> list[dict[str, str]]:
        """The rows of evaluations by an earlier process, if the run was complete already; else none."""
        return Csv.scan(session.folder / "evaluations.csv").rows if self._complete else []

    def summary(self, path: object) -> dict[str, object]:
        """The last lines as JSON values."""
        [session] = self.sessions
        return self._summary(session, path)

    def _summary(self, session: Session, path: object) -> dict[str, object]:
        last = session.last_evaluation
        rows = self._earlier(session) if last is None else []
        evaluation = {"step": int(rows[-1]["step"]), "mean_return": float(rows[-1]["mean_return"])} if rows else None
        return {
            "run": str(path),
            "step": session.step,
            "updates": session.learner.updates,
            "seconds": round(session.seconds, 3),
            "stopped": session.stopped,
            "evaluation": evaluation if last is None else {"step": last[0], **last[1].to_dict()},
            "notices": list(session.notices),
        }

    def _show_news(self) -> None:
        """Show a new evaluation and new notices, also while something else takes long."""
        for session in self.sessions:
            if session.last_evaluation is not self._shown_evaluation:
                self._shown_evaluation = session.last_evaluation
                step, result = session.last_evaluation or (0, None)
                self.say(f"step {step:>9,}  evaluation {result}")
                self._counting = False
            self._show_notices(session.notices)

    def _learned(self, sessions: Sequence[Session]) -> list[str]:
        """Return the parts of the status line: means over the sessions, with a deviation if there are several."""
        parts: list[str] = []
        if left := sessions[0].memory.pretraining_left:
            parts.append(f"pre-training: {left:,} updates left")
        numbers = sessions[0].stepper.engine.numbers()
        if "time/actors" in numbers:
            parts.append(_actors(numbers))
        if returns := evaluated(sessions):
            parts.append(f"evaluation {spread(returns)}")
        training = [one.log.recent_return for one in sessions if one.log.recent_return is not None]
        if training:
            parts.append(f"training {spread(training)}")
        losses = [one.log.last_line.get("learn/critic_loss") for one in sessions]
        if found := [loss for loss in losses if loss is not None]:
            parts.append(f"critic loss {statistics.fmean(found):,.3g}")
        return parts


def evaluated(sessions: Sequence[Session]) -> list[float]:
    """Return the mean returns of the sessions' last evaluations."""
    return [one.last_evaluation[1].mean_return for one in sessions if one.last_evaluation is not None]


def spread(values: Sequence[float]) -> str:
    """Format one value as it is, several as mean ± standard deviation."""
    deviation = f" ± {statistics.pstdev(values):,.1f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):,.1f}{deviation}"


def _actors(numbers: Mapping[str, float]) -> str:
    """Format the state of a cluster: actors, restarts, and how many updates old the actors' parameters are."""
    restarts, lag = numbers["time/actor_restarts"], numbers.get("time/lag_updates_mean")
    restarted = f", {restarts:.0f} restarted" if restarts else ""
    return f"{numbers['time/actors']:.0f} actors{restarted}{'' if lag is None else f', lag {lag:.0f}'}"


def _can_be_recorded(session: Session) -> bool:
    """Return whether the environment renders frames; for EnvPool, whether Gymnasium has its id."""
    from duetto import environments

    config = session.config
    modes = (session.stepper.engine.metadata or {}).get("render_modes")
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
            if not display.sessions or not display.sessions[0].checkpoints.store.steps():
                raise
            raise UsageError(f"{error}\nThen go on with: {to_resume(display.sessions[0].folder)}") from error
