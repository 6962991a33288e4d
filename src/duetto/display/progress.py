"""What a person sees while a run goes on: a progress bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from duetto.errors import escaped
from duetto.training.session import Session

REFRESH_SECONDS = 0.5
LINE_SECONDS = 30.0
RATE_SECONDS = 5.0  # what steps/s is a mean over


def say(console: Console, text: str, style: str | None = None) -> None:
    """Print text as it is: a path in brackets is no markup, and a command to copy is not broken into lines.

    What a run's folder says may come from a stranger: control characters are shown, not obeyed.
    """
    console.print(escaped(text), style=style, highlight=False, markup=False, soft_wrap=True)


class ProgressDisplay:
    """A callback that shows steps/s, time left, the last evaluation, the training return and the critic's loss.

    Before the first step, how many updates of pre-training are left.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = Progress(
            TextColumn("{task.description}", style="bold", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]} steps/s"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[results]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=None, rate="-", results="")
        self._next = self._next_line = 0.0
        self._since: tuple[float, int] | None = None
        self._waited: tuple[float, float] | None = None
        self._shown_notices = 0
        self.session: Session | None = None
        self._shown_evaluation: object = None

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        self._bar.stop()

    def announce(self, session: Session) -> None:
        """The first lines: what runs where."""
        self.session = session
        options, config = session.config.run, session.config
        say(
            self._console,
            f"{config.algorithm.name()} on {config.environment}, {options.backend} on {options.device}, "
            f"seed {options.seed}, preset {config.preset}, {options.steps:,} steps\n{session.folder}/",
        )
        if session.step:
            say(self._console, f"Resuming at step {session.step:,}.")
        self._show_notices(session)

    def __call__(self, session: Session) -> None:
        """After every step: cheap unless it is time to look."""
        now = time.perf_counter()
        self._show_notices(session)
        if session.last_evaluation is not self._shown_evaluation:
            self._shown_evaluation = session.last_evaluation
            step, result = session.last_evaluation or (0, None)
            say(self._console, f"step {step:>9,}  evaluation {result}")
            self._since = None  # an evaluation's time is not the steps'
        if self._since is None:
            self._since = (now, session.step)
        if now < self._next and session.step < session.config.run.steps:
            return
        self._next = now + REFRESH_SECONDS
        rate = (session.step - self._since[1]) / max(now - self._since[0], 1e-9)
        results = self._results(session)
        self._bar.update(
            self._task,
            description=escaped(f"{session.config.algorithm.name()} {session.config.environment}"),
            total=session.config.run.steps,
            completed=session.step,
            rate=f"{rate:,.0f}" if session.step > self._since[1] else "-",
            results=results,
        )
        goes_on = session.step > self._since[1] or session.memory.pretraining_left
        if not self._console.is_terminal and now >= self._next_line and goes_on:
            self._next_line = now + LINE_SECONDS
            say(self._console, f"step {session.step:>9,}  {rate:,.0f} steps/s  {results}")
        if now - self._since[0] > RATE_SECONDS:
            self._since = (now, session.step)

    def _show_notices(self, session: Session) -> None:
        for notice in session.notices[self._shown_notices :]:
            say(self._console, notice, "yellow")
        self._shown_notices = len(session.notices)

    def _results(self, session: Session) -> str:
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
        return "  ".join(parts)

    def _actors(self, session: Session) -> str:
        """On a cluster: how many actors, how many took the place of another, and how long the run waits for them."""
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
        return f"{numbers['time/actors']:.0f} actors{restarted}{share}"
