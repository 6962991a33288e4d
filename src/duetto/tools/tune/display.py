"""The display of a study at work: a line for each trial that ended; on a terminal, a row and a status line."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from rich.console import Console

from duetto.errors import near
from duetto.tools.tune.sampler import MIN_JUDGED, FinishedTrial, best_of
from duetto.tools.tune.space import as_text
from duetto.training.progress_lines import LiveDisplay, clock

if TYPE_CHECKING:  # they import much, and the display shows something before that
    from duetto.tools.tune.results import TuneResult
    from duetto.tools.tune.study import RunningTrial, Study


class StudyDisplay(LiveDisplay):
    """The display of a study at work."""

    def __init__(self, console: Console, quiet: bool = False) -> None:
        super().__init__(console, quiet)
        self._study: Study | None = None
        self._trials: list[FinishedTrial] = []

    def announce(self, study: Study) -> None:
        """Show the first lines: which options are searched, and the folder."""
        plan, run = study.plan, study.plan.config.run
        self._study, self._trials, self._activity = study, study.sampler.trials(), ""
        study.on_end, study.on_poll = self._ended, self._poll
        self._show_row(study)
        trials = f"{study.trials} trial{'s' * (study.trials > 1)}"
        seeds = f"{len(plan.seeds)} seed{'s' * (len(plan.seeds) > 1)}"
        self.say(
            f"{plan.center.name()} on {plan.config.environment}, {run.backend} on {run.device}, around preset "
            f"{plan.config.preset}: {trials} of {seeds}, {run.steps:,} steps each\n"
            f"searched: {', '.join(plan.space)}\n{near(study.folder)}/"
        )
        if self._trials:
            self.say(f"Continuing after {len(self._trials)} trials: {counted(self._trials)}.")

    def finish(self, result: TuneResult) -> None:
        """Show the last lines: the best trial and how to use it, or how to continue."""
        self._poll()
        self.say(f"{len(result.trials)} trials: {counted(list(result.trials))}.")
        best = result.best
        if best is not None:
            self.say(f"Best: trial {best.number}, {best.value:.6g}: {result.preset and near(result.preset)}")
            self.say("\n".join(f"  {name:28} {as_text(value)}" for name, value in best.options.items()))
        if result.fresh is not None:
            self.say(f"In other episodes than those that selected it: {result.fresh:.6g}.")
        for path in result.pictures:
            self.say(str(near(path)))
        if result.pictures and not result.importances:
            self.say(f"Importances of the options need {MIN_JUDGED} trials with a score.")
        if result.stopped:
            self.say("Stopped. Continue with the same command.")
        elif best is not None and self._study is not None:
            config = self._study.plan.config
            name = config.origin and config.origin.file and f"{config.origin.file}:{config.origin.kind}"
            preset = result.preset and near(result.preset)
            self.say(
                "It was selected on these seeds; evaluate it on new ones: "
                f"duetto train {name or config.algorithm.name()} {config.environment} --preset {preset} "
                f"--seed {self._study.plan.fresh_seed}"
            )

    def _poll(self) -> None:
        assert self._study is not None
        self._show_notices(self._study.notices)
        if self._is_due():
            self._show_row(self._study)

    def _ended(self, trial: FinishedTrial) -> None:
        self._poll()
        before = best_of(self._trials)
        assert self._study is not None
        self._trials = self._study.sampler.trials()
        tried = ", ".join(f"{name} {as_text(value)}" for name, value in trial.options.items())
        if trial.state == "pruned":
            *_, (step, score) = trial.scores.items()
            self.say(f"trial {trial.number:>3}  pruned at step {step:,} with {score:.6g}")
        elif trial.state == "complete":
            seeds = ", ".join(f"{seed:.4g}" for seed in trial.seeds)
            better = before is None or trial.value > before.value  # type: ignore[operator]
            first = f"trial {trial.number:>3}  {trial.value:.6g} (seeds {seeds}){'  best so far' * better}"
            self.say(f"{first}\n          {tried}" if better else first)

    def _show_row(self, study: Study) -> None:
        ended = sum(trial.state != "running" for trial in self._trials)
        name = f"{study.plan.center.name()} {study.plan.config.environment}"
        self._row(name, ended, study.trials, " trials", left=clock(time.monotonic() - study.started))

    def _status(self) -> list[str]:
        if (study := self._study) is None:
            return []
        parts = ["stopping: writing checkpoints"] if study.stopped else []
        best = best_of(self._trials)
        parts += [] if best is None else [f"best {best.value:.6g} (trial {best.number})"]
        others = counted([trial for trial in self._trials if trial.state not in ("running", "complete")])
        parts += [others] if others else []
        return parts + [_progress(study, running) for running in list(study.running)]


def counted(trials: list[FinishedTrial]) -> str:
    """Return the numbers of trials of each state, as text."""
    numbers = Counter(trial.state for trial in trials)
    return ", ".join(f"{number} {state}" for state, number in numbers.items())


def _progress(study: Study, running: RunningTrial) -> str:
    steps = study.plan.config.run.steps
    trained = [max(list(run.evaluations), default=0) for run in running.runs]
    return f"trial {running.number}: {min(1.0, sum(trained) / (steps * len(trained))):.0%}"
