"""The display of a study at work: a line for each trial that ended; on a terminal, two that change."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from duetto.display.bar import clock, fitting, row
from duetto.display.live import LiveDisplay
from duetto.errors import escaped
from duetto.tuning.confirming import fresh_seed
from duetto.tuning.optuna import FOR_IMPORTANCE, Trial, best_of
from duetto.tuning.space import as_text

if TYPE_CHECKING:  # with all that they import, and something is to be seen before that
    from duetto.tuning.results import Tuned
    from duetto.tuning.study import Study, Trying

GLANCE = 1.0  # seconds between two pictures of the lines in a notebook


class StudyDisplay(LiveDisplay):
    """The display of a study at work."""

    def __init__(self, console: Console, quiet: bool = False) -> None:
        super().__init__(console, quiet)
        self._study: Study | None = None
        self._doing = ""
        self._trials: list[Trial] = []
        self._next = 0.0

    def doing(self, text: str) -> None:
        """Show what is being done other than training; "" for training."""
        self._doing = text
        self._refresh()

    def announce(self, study: Study) -> None:
        """Show the first lines: what is searched, and where it is."""
        plan, run = study.plan, study.plan.config.run
        self._study, self._trials, self._doing = study, study.optimizer.trials(), ""
        study.on_end, study.on_look = self._ended, self._look
        trials = f"{study.trials} trial{'s' * (study.trials > 1)}"
        seeds = f"{plan.seeds} seed{'s' * (plan.seeds > 1)}"
        self.say(
            f"{plan.centre.name()} on {plan.config.environment}, {run.backend} on {run.device}, around preset "
            f"{plan.config.preset}: {trials} of {seeds}, {run.steps:,} steps each\n"
            f"searched: {', '.join(plan.space)}\n{study.folder}/"
        )
        if self._trials:
            self.say(f"Going on after {len(self._trials)} trials: {counted(self._trials)}.")

    def confirming(self, study: Study, best: Trial) -> None:
        """Show that the best trial is trained with other seeds, in `study`."""
        self._look()
        first, count = study.plan.config.run.seed, study.plan.seeds
        seeds = f"{count} seed{'s' * (count > 1)}"
        self.say(f"Confirming trial {best.number} with {seeds} that it was not chosen by, from {first} on.")
        self._study, self._trials, self._noticed, self._doing = study, [], 0, ""
        study.on_look = self._look

    def finish(self, found: Tuned) -> None:
        """Show the last lines: what was found, what to do with it, or how to go on."""
        self._look()
        self.say(f"{len(found.trials)} trials: {counted(list(found.trials))}.")
        best = found.best
        if best is not None:
            self.say(f"Best: trial {best.number}, {best.value:.6g}: {found.preset}")
            self.say("\n".join(f"  {name:28} {as_text(value)}" for name, value in best.options.items()))
        if found.fresh is not None:
            self.say(f"In other episodes than those that it was chosen by, its runs come to {found.fresh:.6g}.")
        if found.confirmed is not None and found.confirmed.value is not None:
            seeds = ", ".join(f"{seed:.4g}" for seed in found.confirmed.seeds)
            self.say(f"With seeds that it was not chosen by it comes to {found.confirmed.value:.6g} (seeds {seeds}).")
        for path in found.pictures:
            self.say(str(path))
        if found.pictures and not found.importances:
            self.say(f"Which options matter is said from {FOR_IMPORTANCE} trials on that were judged.")
        if found.stopped:
            self.say("Stopped. Go on with the same command.")
        elif best is not None and self._study is not None and found.confirmed is None:
            config = self._study.plan.config
            name = config.origin and config.origin.file and f"{config.origin.file}:{config.origin.kind}"
            self.say(
                f"Its seeds chose it, too. Judge it by others: duetto train {name or config.algorithm.name()} "
                f"{config.environment} --preset {found.preset} --seed {fresh_seed(self._study.plan)}"
            )

    def _look(self) -> None:
        assert self._study is not None
        self._show_notices(self._study.notices)
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + GLANCE
            self._refresh()

    def _ended(self, trial: Trial) -> None:
        self._look()
        before = best_of(self._trials)
        assert self._study is not None
        self._trials = self._study.optimizer.trials()
        tried = ", ".join(f"{name} {as_text(value)}" for name, value in trial.options.items())
        if trial.state == "pruned":
            *_, (step, score) = trial.scores.items()
            self.say(f"trial {trial.number:>3}  pruned at step {step:,} with {score:.6g}")
        elif trial.state == "complete":
            seeds = ", ".join(f"{seed:.4g}" for seed in trial.seeds)
            better = before is None or trial.value > before.value  # type: ignore[operator]
            first = f"trial {trial.number:>3}  {trial.value:.6g} (seeds {seeds}){'  best so far' * better}"
            self.say(f"{first}\n          {tried}" if better else first)

    # ------------------------------------------------------------------------------------------------ lines that change
    def _lines(self, width: int) -> RenderableType:
        if (study := self._study) is None or self._doing:
            return Text(self._doing)
        ended = sum(trial.state != "running" for trial in self._trials)
        below = Text(fitting(self._parts(study), width))
        below.truncate(width, overflow="ellipsis")
        return Group(_above(study, ended, width), below)

    def _parts(self, study: Study) -> list[str]:
        """The parts of the last line, the most important first."""
        parts = ["stopping: writing checkpoints"] if study.stopped else []
        best = best_of(self._trials)
        parts += [] if best is None else [f"best {best.value:.6g} (trial {best.number})"]
        known = counted([trial for trial in self._trials if trial.state not in ("running", "complete")])
        parts += [known] if known else []
        return parts + [_progress(study, trying) for trying in list(study.trying)]


def counted(trials: list[Trial]) -> str:
    """The numbers of trials of each state, as text."""
    numbers = Counter(trial.state for trial in trials)
    return ", ".join(f"{number} {state}" for state, number in numbers.items())


def _progress(study: Study, trying: Trying) -> str:
    steps = study.plan.config.run.steps
    made = [max(list(run.evaluations), default=0) for run in trying.runs]
    return f"trial {trying.trial.number}: {min(1.0, sum(made) / (steps * len(made))):.0%}"


def _above(study: Study, ended: int, width: int) -> Table:
    """The upper line: name, bar, trials, and the time; what does not fit is left out, the name first."""
    name = escaped(f"{study.plan.centre.name()} {study.plan.config.environment}")
    parts = {"count": f"{ended}/{study.trials} trials", "time": clock(time.monotonic() - study.began)}
    return row(name, ended, study.trials, parts, width, expendable=("name", "bar"))
