"""The display of several seeds that are trained side by side: one run's lines, for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console

from duetto.display.bar import clock
from duetto.display.live import say
from duetto.display.progress import ProgressDisplay
from duetto.errors import to_resume

if TYPE_CHECKING:
    from duetto.training.session import Session


class GroupDisplay(ProgressDisplay):
    """A callback of every session that shows all: steps and steps/s as sums over seeds, returns as mean ± std."""

    _whose = " of all seeds"

    def __init__(self, console: Console, quiet: bool = False) -> None:
        super().__init__(console, quiet)
        self.sessions: list[Session] = []
        self._said: set[str] = set()
        self._seen: dict[int, int] = {}  # notices of each session that are dealt with
        self._evaluated = -1  # the step of the last evaluations shown

    def announce_all(self, sessions: Sequence[Session]) -> None:
        """Show the first lines: what runs where."""
        self.sessions = list(sessions)
        self.session: Session | None = sessions[0]
        for session in sessions:
            session.on_activity = self.doing
        self._doing.now("")
        config, options = sessions[0].config, sessions[0].config.run
        seeds = ", ".join(str(session.config.run.seed) for session in sessions)
        self.say(
            f"{config.algorithm.name()} on {config.environment}, {options.backend} on {options.device}, seeds {seeds} "
            f"side by side, preset {config.preset}, {options.steps:,} steps each\n{_folders(sessions)}"
        )
        self._show_all_notices()

    def finish_all(self, paths: Sequence[object]) -> None:
        """Show the last lines: done, or stopped and how to go on."""
        self._show_all_notices()
        sessions = self.sessions
        stopped = [path for path, session in zip(paths, sessions, strict=True) if session.stopped]
        if stopped:
            self.say(f"{len(stopped)} of {len(paths)} seeds stopped. Each goes on by itself: {to_resume(stopped[0])}")
        if returns := _returns(sessions):
            each = ", ".join(f"{value:,.1f}" for value in returns)
            self.say(f"Last evaluations: {_spread(returns)} over {len(returns)} seeds ({each})")
        steps, updates = (sum(one.step for one in sessions), sum(one.learner.updates for one in sessions))
        self.say(f"{steps:,} steps and {updates:,} updates in {clock(max(one.seconds for one in sessions))}.")
        self.say(f"See them: duetto plot {' '.join(map(str, paths))}")

    def summary_of_all(self, paths: Sequence[object]) -> dict[str, object]:
        """The last lines as JSON values, each seed's as for a run alone."""
        return {
            "runs": [self._summary(session, path) for session, path in zip(self.sessions, paths, strict=True)],
        }

    def _show_news(self, session: Session) -> None:
        self._show_evaluations()
        self._show_all_notices()

    def _show_all_notices(self) -> None:
        """Show the notices of all sessions, equal ones only once."""
        for session in self.sessions:
            seed = session.config.run.seed
            if len(session.notices) == self._seen.get(seed, 0):
                continue
            for notice in session.notices[self._seen.get(seed, 0) :]:
                if notice not in self._said:
                    self._said.add(notice)
                    say(self._console, f"Seed {seed}: {notice}", "yellow")
            self._seen[seed] = len(session.notices)

    def _show_evaluations(self) -> None:
        """Show the evaluations of a step, once all seeds that go on have made them."""
        found = [one.last_evaluation or (-1, None) for one in self.sessions]
        at = min((step for (step, _), one in zip(found, self.sessions, strict=True) if not one.stopped), default=-1)
        if at <= self._evaluated:
            return
        self._evaluated, self._since = at, None  # an evaluation's time is not the steps'
        returns = [result.mean_return for step, result in found if result is not None and step == at]
        self.say(f"step {at:>9,}  evaluations {_spread(returns)} over {len(returns)} seeds")

    def _environment(self, session: Session) -> str:
        return f"{session.config.environment} × {len(self.sessions)} seeds"

    def _step(self, session: Session) -> int:
        return sum(one.step for one in self.sessions)

    def _steps(self, session: Session) -> int:
        return sum(one.config.run.steps for one in self.sessions)

    def _goes_on(self, session: Session, made: int) -> bool:
        return bool(made)

    def _results(self, session: Session) -> list[str]:
        parts: list[str] = []
        if returns := _returns(self.sessions):
            parts.append(f"evaluation {_spread(returns)}")
        training = [one.log.recent_return for one in self.sessions if one.log.recent_return is not None]
        if training:
            parts.append(f"training {_spread(training)}")
        losses = [one.log.last_line.get("learn/critic_loss") for one in self.sessions]
        if found := [loss for loss in losses if loss is not None]:
            parts.append(f"critic loss {np.mean(found):,.3g}")
        return parts


def _returns(sessions: Sequence[Session]) -> list[float]:
    return [one.last_evaluation[1].mean_return for one in sessions if one.last_evaluation is not None]


def _spread(values: Sequence[float]) -> str:
    return f"{np.mean(values):,.1f} ± {np.std(values):,.1f}"


def _folders(sessions: Sequence[Session]) -> str:
    if len(sessions) < 4:
        return "\n".join(f"{session.folder}/" for session in sessions)
    return f"{sessions[0].folder}/\n...\n{sessions[-1].folder}/"
