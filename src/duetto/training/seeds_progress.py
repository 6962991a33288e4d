"""The progress of several seeds that train side by side: sums of steps and means of returns over the seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console

from duetto.errors import near, to_resume
from duetto.training.progress import ProgressDisplay, evaluated, spread
from duetto.training.progress_lines import clock, say

if TYPE_CHECKING:
    from pathlib import Path

    from duetto.training.trainer import Trainer


class SeedsProgress(ProgressDisplay):
    """A callback of every trainer that shows all of them."""

    def __init__(self, console: Console, quiet: bool = False) -> None:
        super().__init__(console, quiet)
        self._shown_notices: set[str] = set()
        self._evaluated = -1  # the step of the last evaluations shown

    def announce_all(self, trainers: Sequence[Trainer]) -> None:
        """Show the first lines: what runs where."""
        self._begin(trainers)
        config, options = trainers[0].config, trainers[0].config.run
        seeds = ", ".join(str(trainer.config.run.seed) for trainer in trainers)
        self.say(
            f"{config.algorithm.name()} on {config.environment}, {options.backend} on {options.device}, seeds {seeds} "
            f"side by side, preset {config.preset}, {options.steps:,} steps each\n{_folders(trainers)}"
        )
        self._show_news()

    def finish_all(self, paths: Sequence[Path]) -> None:
        """Show the last lines: done, or stopped and how to continue."""
        self._show_news()
        trainers = self.trainers
        stopped = [path for path, trainer in zip(paths, trainers, strict=True) if trainer.stopped]
        if stopped:
            self.say(f"{len(stopped)} of {len(paths)} seeds stopped. Each goes on by itself: {to_resume(stopped[0])}")
        if returns := evaluated(trainers):
            each = ", ".join(f"{value:,.1f}" for value in returns)
            self.say(f"Last evaluations: {spread(returns)} over {len(returns)} seeds ({each})")
        steps, updates = sum(one.step for one in trainers), sum(one.learner.updates for one in trainers)
        self.say(f"{steps:,} steps and {updates:,} updates in {clock(max(one.seconds for one in trainers))}.")
        self.say(f"See them: duetto plot {' '.join(str(near(path)) for path in paths)}")

    def summary_of_all(self, paths: Sequence[Path]) -> dict[str, object]:
        """Return the last lines as JSON values, each seed's as for a run alone."""
        return {"runs": [self._summary(trainer, path) for trainer, path in zip(self.trainers, paths, strict=True)]}

    def _show_news(self) -> None:
        """Show evaluations once all seeds that train have made them, and equal notices of several seeds once."""
        evaluations = [one.last_evaluation or (-1, None) for one in self.trainers]
        training = [step for (step, _), one in zip(evaluations, self.trainers, strict=True) if not one.stopped]
        if (at := min(training, default=-1)) > self._evaluated:
            self._evaluated, self._counting = at, False
            returns = [result.mean_return for step, result in evaluations if result is not None and step == at]
            self.say(f"step {at:>9,}  evaluations {spread(returns)} over {len(returns)} seeds")
        for trainer in self.trainers:
            for notice in trainer.notices:
                if notice not in self._shown_notices:
                    self._shown_notices.add(notice)
                    say(self._console, f"Seed {trainer.config.run.seed}: {notice}", "yellow")


def _folders(trainers: Sequence[Trainer]) -> str:
    if len(trainers) < 4:
        return "\n".join(f"{near(trainer.folder)}/" for trainer in trainers)
    return f"{near(trainers[0].folder)}/\n...\n{near(trainers[-1].folder)}/"
