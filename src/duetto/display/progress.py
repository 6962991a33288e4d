"""The display of a run at work: two lines that change if a person watches, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.live import Live

from duetto import own_files
from duetto.display.bar import State, clock, lines
from duetto.display.live import LiveDisplay, say
from duetto.errors import UsageError, escaped, to_resume
from duetto.storage.records import Csv

if TYPE_CHECKING:  # it takes a second to import, and something is to be seen before that
    from duetto.training.session import Session

REFRESH_SECONDS = 0.5
LINE_SECONDS = 30.0
RATE_SECONDS = 5.0  # what steps/s is a mean over
SOON_SECONDS = 5.0  # after which plain lines, too, say what takes so long


@contextmanager
def working(console: Console, text: str) -> Iterator[Callable[[str], None]]:
    """Show on a terminal what is being done and for how long; yields a function that changes the text."""
    doing = Doing(text)
    if not console.is_terminal:
        yield doing.now
        return
    with Live(console=console, get_renderable=lambda: lines(State(doing=str(doing)), console.width), transient=True):
        yield doing.now


class Doing:
    """A text on what is being done, and since when."""

    text: str
    since: float

    def __init__(self, text: str = "") -> None:
        self.text, self.since = text, time.perf_counter()

    def now(self, text: str) -> None:
        """Change the text; the time starts anew if the first word differs."""
        if text.split(" ")[:1] != self.text.split(" ")[:1]:
            self.since = time.perf_counter()
        self.text = text

    @property
    def seconds(self) -> float:
        """Seconds since it began."""
        return time.perf_counter() - self.since

    def __str__(self) -> str:
        return escaped(f"{self.text} ({self.seconds:.0f} s)") if self.text else ""


class ProgressDisplay(LiveDisplay):
    """A callback that shows steps/s, time left, the last evaluation, the training return and the critic's loss.

    Before the first step it shows what is being done until then, and how many updates of pre-training are left.
    """

    _whose = ""  # the steps/s are, after them

    def __init__(self, console: Console, quiet: bool = False) -> None:
        super().__init__(console, quiet)
        self._state, self._doing = State(), Doing()
        self._next = self._next_line = self._next_word = 0.0
        self._since: tuple[float, int] | None = None
        self._waited: tuple[float, float] | None = None
        self.session: Session | None = None
        self._shown_evaluation: object = None
        self._complete = False

    def __exit__(self, *raised: Any) -> None:
        self._doing.now("")
        self._live.transient = self.session is None  # what was said of the preparations is of no use any more
        super().__exit__(*raised)

    def _lines(self, width: int) -> RenderableType:
        self._state.doing = str(self._doing)
        return lines(self._state, width)

    def doing(self, text: str) -> None:
        """Show what is being done now; "" for the run itself."""
        if self.session is not None:
            self._show_news(self.session)
        if not self._doing.text:
            self._next_word = time.perf_counter() + SOON_SECONDS
        self._doing.now(text)
        self._refresh()
        if text and not self._live_lines and not self._quiet and time.perf_counter() >= self._next_word:
            self._next_word = time.perf_counter() + LINE_SECONDS
            say(self._console, str(self._doing))

    def announce(self, session: Session) -> None:
        """Show the first lines: what runs where."""
        self.session, session.on_activity = session, self.doing
        self._doing.now("")
        # it may begin behind where another session of the run was, whose notices and times are not its own
        self._since = self._waited = None
        self._noticed, self._shown_evaluation = 0, session.last_evaluation
        options, config = session.config.run, session.config
        self._complete = session.step >= options.steps
        self.say(
            f"{config.algorithm.name()} on {config.environment}, {options.backend} on {options.device}, "
            f"seed {options.seed}, preset {config.preset}, {options.steps:,} steps\n{session.folder}/",
        )
        if session.step:
            self.say(f"Resuming at step {session.step:,}.")
        self._show_notices(session.notices)

    def __call__(self, session: Session) -> None:
        """Update the display after a step; cheap unless it is time to look."""
        now = time.perf_counter()
        self._doing.text = ""
        self._show_news(session)
        step = self._step(session)
        if self._since is None:
            self._since = (now, step)
        if now < self._next and session.step < session.config.run.steps:
            return
        self._next = now + REFRESH_SECONDS
        made, state = step - self._since[1], self._state
        state.name = escaped(f"{session.config.algorithm.name()} {self._environment(session)}")
        state.step, state.steps = step, self._steps(session)
        if made:
            state.rate = made / max(now - self._since[0], 1e-9)
        state.results = self._results(session)
        self._refresh()
        if not self._live_lines and now >= self._next_line and self._goes_on(session, made):
            self._next_line = now + LINE_SECONDS
            rate = f"{state.rate or 0:,.0f} steps/s{self._whose}"
            self.say("  ".join([f"step {session.step:>9,}", rate, *state.results]))
        if now - self._since[0] > RATE_SECONDS:
            self._since = (now, step)

    def finish(self, path: object) -> None:
        """Show the last lines: done, or stopped and how to go on."""
        session = self.session
        assert session is not None
        if session.stopped:
            self._show_news(session)
            self.say(f"Stopped at step {session.step:,}. Go on with: {to_resume(path)}")
            return
        self._show_notices(session.notices)
        if self._complete:
            self.say("Nothing was left to do: all steps are made. More of them, --steps N, go on.")
        if last := self._last_evaluation(session):
            self.say(f"Last evaluation: {last}")
        self.say(f"{session.step:,} steps and {session.learner.updates:,} updates in {clock(session.seconds)}.")
        if _can_be_recorded(session):
            self.say(f"See it: duetto video {path}")

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
        assert self.session is not None
        return self._summary(self.session, path)

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

    def _show_evaluation(self, session: Session) -> None:
        if session.last_evaluation is not self._shown_evaluation:
            self._shown_evaluation = session.last_evaluation
            step, result = session.last_evaluation or (0, None)
            self.say(f"step {step:>9,}  evaluation {result}")
            self._since = None  # an evaluation's time is not the steps'

    def _show_news(self, session: Session) -> None:
        """Show a new evaluation and new notices, also while something else takes long."""
        self._show_evaluation(session)
        self._show_notices(session.notices)

    # ------------------------------------------------------------------------------------------------ what it shows
    def _environment(self, session: Session) -> str:
        return own_files.short(session.config.environment)

    def _step(self, session: Session) -> int:
        return session.step

    def _steps(self, session: Session) -> int:
        return session.config.run.steps

    def _goes_on(self, session: Session, made: int) -> bool:
        return bool(made or session.memory.pretraining_left)

    def _results(self, session: Session) -> list[str]:
        parts: list[str] = []
        if session.memory.pretraining_left:
            parts.append(f"pre-training: {session.memory.pretraining_left:,} updates left")
        if actors := self._actors(session):
            parts.append(actors)
        if session.last_evaluation is not None:
            parts.append(f"evaluation {session.last_evaluation[1].mean_return:,.1f}")
        if session.log.recent_return is not None:
            parts.append(f"training {session.log.recent_return:,.1f}")
        loss = session.log.last_line.get("learn/critic_loss")
        if loss is not None:
            parts.append(f"critic loss {loss:,.3g}")
        return parts

    def _actors(self, session: Session) -> str:
        """The state of a cluster's actors as text, "" without one: how many, how many were restarted, the share of time
        that the run waits for them, and how many updates old their parameters are, if they act.
        """
        numbers = session.stepper.engine.numbers()
        if "time/actors" not in numbers:
            return ""
        restarts, waited = numbers["time/actor_restarts"], numbers["time/waiting_for_actors"]
        now = time.perf_counter()
        since, before = self._waited or (now, waited)
        if self._waited is None or now - since > RATE_SECONDS:
            self._waited = (now, waited)
        restarted = f", {restarts:.0f} restarted" if restarts else ""
        share = f", waits {(waited - before) / (now - since):.0%}" if now > since else ""
        lag = f", lag {numbers['time/lag_updates_mean']:.0f}" if "time/lag_updates_mean" in numbers else ""
        return f"{numbers['time/actors']:.0f} actors{restarted}{share}{lag}"


def _can_be_recorded(session: Session) -> bool:
    """Whether a video can be made: the environment renders frames, and EnvPool's id exists in Gymnasium, too."""
    from duetto import environments

    config = session.config
    modes = (session.stepper.engine.metadata or {}).get("render_modes")
    if modes is not None and "rgb_array" not in modes:
        return False
    if config.run.engine != "envpool" or config.run.evaluate_every:
        return True
    try:
        environments.separate(config.environment, render_mode="rgb_array", kwargs=config.environment_options).close()
    except UsageError:
        return False
    return True
