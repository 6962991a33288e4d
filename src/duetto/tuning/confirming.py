"""Training the best trial once more, with seeds that it was not chosen by.

The best of many scores is the best partly by luck: of its seeds, and of the episodes that it was judged in. New runs,
by which nothing is chosen, have no such luck, so their score is what to expect of the same options another time.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from duetto.tuning.optuna import Trial
from duetto.tuning.study import Plan, Study

CONFIRMED = "confirmed"  # the folder of its runs, in the study's


@dataclass(frozen=True)
class Confirmed:
    """The score of the best trial with other seeds.

    Attributes:
        value: Interquartile mean over the seeds; None if learning diverged, a run failed, or it was stopped.
        seeds: The score of each seed.
        runs: The folders of their runs.
        reason: Why there is no value; "" if there is one, and if it was stopped.
    """

    value: float | None
    seeds: tuple[float, ...]
    runs: tuple[Path, ...]
    reason: str = ""

    def to_dict(self) -> dict[str, object]:
        """The fields as JSON values."""
        runs = [str(run) for run in self.runs]
        return {"value": self.value, "seeds": list(self.seeds), "runs": runs, "reason": self.reason}


def fresh_seed(plan: Plan) -> int:
    """The first seed whose evaluations and environments begin in none of the study's initial states."""
    own = plan.config.run  # its episodes and environments have seeds of their own, counted from the run's
    return own.seed + plan.seeds + max(own.evaluation_episodes, own.num_envs) - 1


def confirming(plan: Plan, folder: Path, best: Trial, seeds: int, jobs: int) -> Study:
    """A study of one trial, `best`, with `seeds` seeds that the study of `plan` has not used."""
    run = dataclasses.replace(plan.config.run, seed=fresh_seed(plan))
    others = dataclasses.replace(plan, config=dataclasses.replace(plan.config, run=run), seeds=seeds)
    return Study(others, folder, _Once(best), 1, jobs, CONFIRMED)


class _Once:
    """A stand-in for a study's optimiser: it has one trial, which is given, never pruned, and recorded nowhere."""

    def __init__(self, best: Trial) -> None:
        self._found = Trial(best.number, "running", best.options)
        self._asked = False

    def ask(self) -> Trial:
        self._asked = True
        return self._found

    def unfinished(self) -> list[Trial]:
        return []

    def trial(self, number: int) -> Trial:
        return self._found

    def trials(self) -> list[Trial]:
        return [self._found] if self._asked else []

    def report(self, number: int, step: int, score: float) -> None:
        return

    def is_hopeless(self, number: int) -> bool:
        return False

    def end(
        self, number: int, state: str, value: float | None = None, seeds: tuple[float, ...] = (), reason: str = ""
    ) -> None:
        self._found = dataclasses.replace(self._found, state=state, value=value, seeds=seeds, reason=reason)
