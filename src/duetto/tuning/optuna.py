"""Choosing what is tried next, and what is pruned, with Optuna; nothing else imports it.

Trials come from a tree-structured Parzen estimator (Bergstra et al., 2011; Optuna's TPE). Each is drawn with a
generator of its own, from the study's seed and the trial's number: so a study that was killed goes on as it would have
gone on. A trial is pruned if its best score so far is below the median of what complete trials had at the same step.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from duetto.algorithms.searching import DOUBLING, FROM_ONE, Choices
from duetto.errors import CheckpointError, DuettoError, UsageError
from duetto.extras import install
from duetto.tuning.space import Dimension, Space, as_text

_NAME = "duetto"
BEFORE_PRUNING = 5  # trials that are whole before any is pruned
FOR_IMPORTANCE = 10  # trials that were judged before it is said which options matter
TOP = 0.25  # of all trials are the good ones, for that


@dataclass(frozen=True)
class Trial:
    """One trial of a study.

    Attributes:
        number: From 0 on.
        state: "running", "complete", "pruned", "diverged" (learning did) or "failed".
        options: The values that were tried, by field.
        value: Its score, if it is complete.
        scores: By steps, the interquartile means that pruning went by.
        seeds: The score of each seed, if it is complete.
        reason: Why it failed or diverged.
    """

    number: int
    state: str
    options: dict[str, Any]
    value: float | None = None
    scores: dict[int, float] = field(default_factory=dict)
    seeds: tuple[float, ...] = ()
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        told = {name: value for name, value in vars(self).items() if value not in ("", None)} | {"value": self.value}
        return told | {"seeds": list(self.seeds), "scores": {str(step): score for step, score in self.scores.items()}}


def best_of(trials: list[Trial]) -> Trial | None:
    """The trial with the highest score, the first of equals; None if none is complete."""
    complete = [trial for trial in trials if trial.value is not None]
    return max(complete, key=lambda trial: (trial.value, -trial.number), default=None)


class Optimizer:
    """The study in Optuna, kept in a journal."""

    def __init__(self, journal: Path, space: Space, seed: int, start: dict[str, Any], prune_from: int | None) -> None:
        """`start` are the centre's values, which the first trial tries. No trial is pruned before `prune_from` steps.

        Raises:
            UsageError: Optuna is not installed.
            CheckpointError: The journal is damaged.
            DuettoError: It cannot be read or written, as with a full disk; every method may raise it, too.
        """
        optuna = self.needed()
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._optuna, self._space, self._seed = optuna, space, seed
        pruner = optuna.pruners.NopPruner()
        if prune_from is not None:
            pruner = optuna.pruners.MedianPruner(n_startup_trials=BEFORE_PRUNING, n_warmup_steps=prune_from)
        try:
            with _quiet(), _at_the_disk(journal):
                _cut_to_whole_lines(journal)
                backend = optuna.storages.journal.JournalFileBackend(str(journal), _Held())
                storage = optuna.storages.JournalStorage(_Journal(journal, backend))
                self._study = optuna.create_study(
                    storage=storage, study_name=_NAME, direction="maximize", load_if_exists=True, pruner=pruner
                )
                first = {one.label: one.param(start[one.field]) for one in space.values()}
                if not self._study.get_trials(deepcopy=False) and None not in first.values():
                    self._study.enqueue_trial(first)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(
                f"{journal} is damaged ({error}). Put an undamaged copy there, or begin anew with another --output."
            ) from error
        self._running: dict[int, Any] = {}

    @staticmethod
    def needed() -> Any:
        """Import Optuna and return it. UsageError if it is not installed."""
        try:
            import optuna
        except ImportError as error:
            raise UsageError(f"Tuning needs Optuna. Install: {install('tune')}") from error
        return optuna

    # ------------------------------------------------------------------------------------------------ one trial
    def ask(self) -> Trial:
        """Draw the next trial."""
        trials = self._study.get_trials(deepcopy=False)
        waiting = [trial.number for trial in trials if trial.state.name == "WAITING"]
        self._seed_for(min(waiting, default=len(trials)))
        with _quiet():
            asked = self._study.ask()
        return self._drawn(asked)

    def unfinished(self) -> list[Trial]:
        """The trials without an end, as their process died; from here on they can be reported to."""
        for found in self._study.get_trials(deepcopy=False):
            if found.state.name == "RUNNING" and found.number not in self._running:
                self._seed_for(found.number)  # it may have died while it was drawn
                self._drawn(self._optuna.Trial(self._study, found._trial_id))
        return [self.trial(number) for number in sorted(self._running)]

    def _seed_for(self, number: int) -> None:
        seed = int(np.random.SeedSequence((self._seed, number)).generate_state(1)[0])
        self._study.sampler = self._optuna.samplers.TPESampler(seed=seed)

    def _drawn(self, trial: Any) -> Trial:
        with _quiet():
            for one in self._space.values():
                _suggest(trial, one)
        self._running[trial.number] = trial
        return self.trial(trial.number)

    def report(self, number: int, step: int, score: float) -> None:
        """Record a trial's score after so many steps; one that is known already is passed over."""
        if step not in self.trial(number).scores:
            self._running[number].report(score, step)

    def is_hopeless(self, number: int) -> bool:
        """Whether a trial should be pruned, by what was reported."""
        return bool(self._running[number].should_prune())

    def end(
        self, number: int, state: str, value: float | None = None, seeds: tuple[float, ...] = (), reason: str = ""
    ) -> None:
        """Record a trial's end: "complete" with its value, "pruned", "diverged" or "failed".

        For drawing the next trials, one that diverged counts as bad, one that failed as never tried.
        """
        states = self._optuna.trial.TrialState
        trial = self._running.pop(number)
        for name, about in (("state", state), ("seeds", list(seeds)), ("reason", reason)):
            trial.set_user_attr(name, about)
        told = {"complete": states.COMPLETE, "failed": states.FAIL}.get(state, states.PRUNED)
        with _quiet():
            self._study.tell(trial, value if state == "complete" else None, state=told)

    # ------------------------------------------------------------------------------------------------ all of them
    def trial(self, number: int) -> Trial:
        """The trial of a number."""
        return self._known(self._study.get_trials(deepcopy=False)[number])

    def trials(self) -> list[Trial]:
        """All trials that were begun, by number."""
        found = self._study.get_trials(deepcopy=False)
        return [self._known(trial) for trial in found if trial.state.name != "WAITING"]

    def importances(self) -> dict[str, float]:
        """The share of each field in what sets the best quarter of the trials apart from the others (PED-ANOVA,
        Watanabe et al., 2023, arXiv:2304.10255), the largest first; {} if too few were judged to say. Trials that
        were pruned count with the score that they were pruned at: left out, they would hide what makes a trial bad.
        """
        judged = [trial for trial in self._study.get_trials(deepcopy=False) if _score(trial) is not None]
        if len(judged) < FOR_IMPORTANCE:
            return {}
        trial, evaluator = self._optuna.trial, self._optuna.importance.PedAnovaImportanceEvaluator
        with _quiet():
            aside = self._optuna.create_study(direction="maximize")
            for one in judged:
                held = {"params": one.params, "distributions": one.distributions, "value": _score(one)}
                aside.add_trial(trial.create_trial(**held))
            found = self._optuna.importance.get_param_importances(
                aside, evaluator=evaluator(target_quantile=TOP), normalize=True
            )
        shares = {one.field: float(found.get(one.label, 0.0)) for one in self._space.values()}
        known = {name: share for name, share in shares.items() if math.isfinite(share)}
        return dict(sorted(known.items(), key=lambda item: -item[1])) if any(known.values()) else {}

    def _known(self, trial: Any) -> Trial:
        about = trial.user_attrs
        state = "running" if trial.state.name in ("RUNNING", "WAITING") else about.get("state", "failed")
        values = {one.field: one.value(trial.params[one.label]) for one in self._space.values()} if trial.params else {}
        value = trial.value if state == "complete" else None
        scores = {int(step): score for step, score in sorted(trial.intermediate_values.items())}
        return Trial(trial.number, state, values, value, scores, tuple(about.get("seeds", ())), about.get("reason", ""))


def _score(trial: Any) -> float | None:
    """The score of one of Optuna's trials that is complete or pruned; else None."""
    return trial.value if trial.user_attrs.get("state") in ("complete", "pruned") else None


class _Journal:
    """Optuna's file of a journal, which says in a sentence that the disk refused."""

    def __init__(self, path: Path, backend: Any) -> None:
        self._path, self._backend = path, backend

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        with _at_the_disk(self._path):
            yield from self._backend.read_logs(log_number_from)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        with _at_the_disk(self._path):
            self._backend.append_logs(logs)


@contextmanager
def _at_the_disk(journal: Path) -> Iterator[None]:
    """Raise DuettoError for what the disk refuses."""
    try:
        yield
    except OSError as error:
        raise DuettoError(
            f"{journal} cannot be written: {error.strerror}. Put that right; the same call goes on."
        ) from error


class _Held:
    """A stand-in for the journal's lock: whoever works on a study holds its folder's lock."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        return


def _suggest(trial: Any, one: Dimension) -> None:
    """Draw a parameter; if the trial has it already, nothing changes."""
    how = one.how
    if isinstance(how, Choices):
        trial.suggest_categorical(one.label, [as_text(value) for value in how.values])
    elif how.step == DOUBLING:
        trial.suggest_int(one.label, int(math.log2(how.low)), int(math.log2(how.high)))
    elif how.log == FROM_ONE:
        trial.suggest_float(one.label, round(1.0 - how.high, 12), round(1.0 - how.low, 12), log=True)
    elif one.whole:
        trial.suggest_int(one.label, int(how.low), int(how.high), log=bool(how.log), step=int(how.step or 1))
    else:
        trial.suggest_float(one.label, how.low, how.high, log=bool(how.log), step=how.step)


def _cut_to_whole_lines(journal: Path) -> None:
    """Cut the half line that a killed process may have left, after which nothing could be written."""
    if journal.is_file():
        with journal.open("rb+") as file:
            file.truncate(file.read().rfind(b"\n") + 1)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Optuna's warnings of experimental features, on which no user could act."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
