"""Choose the options of the next trial, and prune trials, with Optuna, which no other file imports.

A tree-structured Parzen estimator (Bergstra et al., 2011; Optuna's TPE) chooses the options. Each trial has its own
random generator, seeded with the study's seed and the trial's number, so a killed study continues with the same trials.
A trial is pruned if its best score so far is below the median score that complete trials had at the same step.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from duetto.errors import CheckpointError, DuettoError, UsageError
from duetto.install_hint import install
from duetto.storage import safe_open
from duetto.tools.tune.space import Space, as_text

STARTUP_TRIALS = 5  # number of complete trials before any trial may be pruned


@dataclass(frozen=True)
class TrialRecord:
    """A trial of a study, finished or still running.

    Attributes:
        number: The trial's number in the study, from 0.
        state: "running", "complete", "pruned", "diverged" (numbers in training became infinite or NaN) or "failed".
        options: The values of the searched hyperparameters, by field.
        value: The trial's score; None unless the trial is complete.
        seeds: The score of each seed; empty unless the trial is complete.
        reason: Why the trial was pruned, failed or diverged.
    """

    number: int
    state: str
    options: dict[str, Any]
    value: float | None = None
    seeds: tuple[float, ...] = ()
    reason: str = ""


def best_of(trials: list[TrialRecord]) -> TrialRecord | None:
    """Return the trial with the highest score, the earliest if several have it; None if no trial is complete."""
    complete = [trial for trial in trials if trial.value is not None]
    return max(complete, key=lambda trial: (trial.value, -trial.number), default=None)


class Sampler:
    """An Optuna study, stored in a journal file. Every method may raise OSError, for example if the disk is full."""

    def __init__(self, journal: Path, space: Space, seed: int, start: Mapping[str, Any]) -> None:
        """Open or create the journal. `start` has the first trial's values, by field.

        Raises:
            UsageError: Optuna is not installed.
            CheckpointError: The journal is damaged.
        """
        optuna = imported_optuna()
        self._optuna, self._space, self._seed = optuna, space, seed
        self._distributions = distributions(space)
        with os.fdopen(safe_open.open_file(journal, os.O_RDWR | os.O_CREAT), "rb+") as file:
            file.truncate(file.read().rfind(b"\n") + 1)  # a killed process may have left half a line
        self._running: dict[int, Any] = {}
        try:
            backend = optuna.storages.journal.JournalFileBackend(str(journal), _NoLock())
            self._study = optuna.create_study(
                storage=optuna.storages.JournalStorage(backend),
                study_name="duetto",
                direction="maximize",
                load_if_exists=True,
            )
            if not self._study.get_trials(deepcopy=False):
                params = {name: dimension.param(start[name]) for name, dimension in space.items()}
                self._study.enqueue_trial({name: param for name, param in params.items() if param is not None})
            self.trials()
        except (OSError, DuettoError):
            raise
        except Exception as error:  # Optuna raises errors of many kinds for a damaged file
            raise CheckpointError(
                f"{journal} is damaged ({error}). Restore an undamaged copy, or start a new study with --output."
            ) from error

    # ------------------------------------------------------------------------------------------------ one trial
    def ask(self) -> TrialRecord:
        """Start and return the next trial, with options chosen by Optuna."""
        trials = self._study.get_trials(deepcopy=False)
        number = min((trial.number for trial in trials if trial.state.name == "WAITING"), default=len(trials))
        seed = int(np.random.SeedSequence((self._seed, number)).generate_state(1)[0])
        self._study.sampler = self._optuna.samplers.TPESampler(seed=seed)
        trial = self._study.ask(self._distributions)
        self._running[trial.number] = trial
        return self._converted(self._study.get_trials(deepcopy=False)[trial.number])

    def unfinished(self) -> list[TrialRecord]:
        """Reopen the trials that a killed process left running, and return them."""
        for trial in self._study.get_trials(deepcopy=False):
            if trial.state.name == "RUNNING" and trial.number not in self._running:
                self._running[trial.number] = self._optuna.Trial(self._study, trial._trial_id)
        return [trial for trial in self.trials() if trial.number in self._running]

    def report(self, number: int, step: int, score: float) -> None:
        """Record a trial's score at a step, unless a score of this step is already recorded."""
        if step not in self._study.get_trials(deepcopy=False)[number].intermediate_values:
            self._running[number].report(score, step)

    def should_prune(self, number: int, step: int) -> bool:
        """Return whether a trial's best score is below the median of the complete trials' scores at this step.

        This is Optuna's MedianPruner, except that the caller gives the step: Optuna takes the largest one, but seeds of
        a trial that train at the same time report their steps in turn.
        """
        trials = self._study.get_trials(deepcopy=False)
        done = [trial.intermediate_values for trial in trials if trial.state.name == "COMPLETE"]
        known = [scores[step] for scores in done if step in scores]
        best = max(trials[number].intermediate_values.values())
        return len(done) >= STARTUP_TRIALS and bool(known) and best < float(np.median(known))

    def end(
        self, number: int, state: str, value: float | None = None, seeds: tuple[float, ...] = (), reason: str = ""
    ) -> None:
        """Record how a trial ended: "complete" (with its score `value`), "pruned", "diverged" or "failed".

        The sampler avoids the options of diverged trials, and ignores failed trials.
        """
        states = self._optuna.trial.TrialState
        trial = self._running.pop(number)
        for name, attribute in (("state", state), ("seeds", list(seeds)), ("reason", reason)):
            trial.set_user_attr(name, attribute)
        end = {"complete": states.COMPLETE, "failed": states.FAIL}.get(state, states.PRUNED)
        self._study.tell(trial, value if state == "complete" else None, state=end)

    # ------------------------------------------------------------------------------------------------ all trials
    def trials(self) -> list[TrialRecord]:
        """Return all trials that were started, by number."""
        trials = self._study.get_trials(deepcopy=False)
        return [self._converted(trial) for trial in trials if trial.state.name != "WAITING"]

    def _converted(self, trial: Any) -> TrialRecord:
        attributes, params = trial.user_attrs, trial.params
        state = "running" if trial.state.name in ("RUNNING", "WAITING") else attributes.get("state", "failed")
        return TrialRecord(
            trial.number,
            state,
            {name: dimension.value(params[name]) for name, dimension in self._space.items() if name in params},
            trial.value if state == "complete" else None,
            tuple(attributes.get("seeds", ())),
            attributes.get("reason", ""),
        )


def imported_optuna() -> Any:
    """Import Optuna and return it. Raise UsageError if it is not installed."""
    try:
        import optuna
    except ImportError as error:
        raise UsageError(f"Tuning needs Optuna. Install: {install('tune')}") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    return optuna


def distributions(space: Space) -> dict[str, Any]:
    """Return Optuna's distribution of each parameter. Raises UsageError for an invalid range."""
    kinds = imported_optuna().distributions
    found: dict[str, Any] = {}
    for name, dimension in space.items():
        low, high, log = dimension.low, dimension.high, dimension.log
        try:
            if dimension.choices:
                found[name] = kinds.CategoricalDistribution([as_text(choice) for choice in dimension.choices])
            elif dimension.whole:
                found[name] = kinds.IntDistribution(int(low), int(high), log=log)
            else:
                found[name] = kinds.FloatDistribution(low, high, log=log)
        except (TypeError, ValueError) as error:
            raise UsageError(f"{name} cannot be searched by {dimension.to_dict()} ({error}).") from error
    return found


class _NoLock:
    """A lock for the journal that does nothing, since the study has already locked its folder."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        return
