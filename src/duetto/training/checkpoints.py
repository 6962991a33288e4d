"""A run's checkpoints: their content, and resuming from one.

    save   components, log, evaluations, callbacks, the trainer's numbers   -> a folder
    load   the same, in that order; files are cut back to their length then <- that folder

The memory's transitions are written as they come, each once: a checkpoint says which of them are its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from duetto.errors import CheckpointError
from duetto.storage.checkpoint import CheckpointStore, Loaded
from duetto.storage.config import Config
from duetto.storage.dict_diff import sentence
from duetto.storage.logs import Csv, JsonLines
from duetto.storage.reproducibility import ENVIRONMENT, deciding
from duetto.training import resume_checks
from duetto.training.callbacks import CallbackList
from duetto.training.components import Components
from duetto.training.diagnostics import check_finite
from duetto.training.evaluator import Evaluator
from duetto.training.metrics import MetricLog
from duetto.training.resume_checks import Resumption


class Checkpoints:
    """The checkpoints of one run.

    Attributes:
        store: Where they are written.
        last: Step and updates of the last one, or None.
        resumed: How the run continues from a checkpoint; empty in a new run.
    """

    def __init__(
        self,
        store: CheckpointStore,
        config: Config,
        components: Components,
        log: MetricLog,
        evaluator: Evaluator,
        callbacks: CallbackList,
    ) -> None:
        self.store: CheckpointStore = store
        self.last: tuple[int, int] | None = None
        self.resumed: Resumption = Resumption()
        self._config, self._components = config, components
        self._log, self._evaluator, self._callbacks = log, evaluator, callbacks

    @property
    def logs(self) -> tuple[JsonLines, Csv]:
        """The files of metrics and evaluations."""
        return self._log.lines, self._evaluator.table

    @property
    def step(self) -> int | None:
        """The step of the last checkpoint, or None."""
        return None if self.last is None else self.last[0]

    def has(self, step: int) -> bool:
        """Whether no step, this is the last one, and no update was made since the last checkpoint."""
        return self.last == (step, self._components.learner.updates)

    def is_due(self, before: int, step: int) -> bool:
        """Whether a checkpoint is due at this step, and not written yet; `before` is the step before.

        With shards, which may be lost, the first one is written after the random steps.
        """
        every = self._config.run.checkpoint_every
        first = self._config.algorithm.first_random_steps() if every and self._components.shards is not None else 0
        return (crossed(before, step, every) or before < first <= step) and not self.has(step)

    def save(self, step: int, seconds: float) -> Path:
        """Write a checkpoint and return its folder.

        Raises:
            NonFiniteError: Learning has diverged; nothing is written.
            CheckpointError: It cannot be written; earlier checkpoints are as they were.
        """
        state, memory = self.state_dict(step, seconds), self._components.memory
        check_finite(state["learner"]["parameters"])
        oldest = memory.written - memory.rows if memory.rows else None
        path = self.store.save(step, state, memory.segment(self.store.covered), oldest)
        self._evaluator.keep_best()
        self.last = (step, self._components.learner.updates)
        self._components.look_at_saved(state["stepper"])
        return path

    def acting_state(self) -> dict[str, Any]:
        """The state that acting needs, and the options that decided its numbers."""
        return {"config": deciding(self._config)} | self._components.acting_state()

    def state_dict(self, step: int, seconds: float) -> dict[str, Any]:
        """Everything that the rest of the run depends on, except the memory's transitions."""
        return self.acting_state() | {
            "log": self._log.state_dict(),  # before the others: it waits for the device and finds a divergence
            **self._components.state_dict(),
            "evaluations": self._evaluator.state_dict(),
            "callbacks": self._callbacks.state_dict(),
            "trainer": {"step": step, "seconds": seconds},
            **resume_checks.run_state(self._config, self._components.learner),
        }

    def load(self, loaded: Loaded, folder: Path, accept_changes: bool) -> tuple[int, float]:
        """Resume from a checkpoint; return its step and seconds of work.

        What logs and tables hold from after it is dropped.

        Raises:
            UsageError: The config decides other numbers than the checkpoint's, and `accept_changes` is not given.
            CheckpointError: It changes what cannot change in a run that has started.
        """
        plan = resume_checks.resumption(loaded, self._config, folder, self._components, accept_changes)
        try:
            self._restore(plan, loaded)
        except CheckpointError as error:
            if not plan.changed:
                raise
            raise CheckpointError(
                f"The run cannot continue with what has changed: {sentence(plan.changed)}. {error} Put the old values "
                f"back, or start a new run from this one's networks (--from {folder})."
            ) from error
        self.resumed = plan
        return plan.state["trainer"]["step"], plan.state["trainer"]["seconds"]

    def _restore(self, plan: Resumption, loaded: Loaded) -> None:
        state, components = plan.state, self._components
        step = state["trainer"]["step"]
        components.load_state_dict(state, loaded.segments)
        if "algorithm.temperature" in plan.changed:
            components.set_fixed()
        self._callbacks.expect(state["callbacks"])
        plan.notices += self._log.load_state_dict(state["log"])
        plan.notices += self._evaluator.load_state_dict(state["evaluations"], step)
        self._log.purge_after(self._evaluator.written())
        self.last = (step, components.learner.updates)
        if not components.stepper.resumed_exactly:
            components.interrupt(~components.stepper.restored)
            if ENVIRONMENT.isdisjoint(plan.changed):
                plan.inexact.append(resume_checks.new_episodes(components.stepper))
                plan.notices.append(plan.inexact[-1])


def crossed(before: int, now: int, every: int) -> bool:
    """Whether a multiple of `every` is between two steps; never if it is 0."""
    return every > 0 and before // every < now // every
