"""A run's checkpoints: what they hold, and going on from one.

    made:  the parts, what is logged, where the files end, the callbacks, the trainer's numbers   -> a folder
    gone on from:  the same, in that order, and the files are cut back to where they ended then   <- that folder

The memory's transitions are written as they come, each once: a checkpoint says which of them are its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from duetto.errors import CheckpointError
from duetto.storage.checkpoint import CheckpointStore, Loaded
from duetto.storage.dict_diff import Diff, sentence
from duetto.storage.reproducibility import ENVIRONMENT, deciding, packages
from duetto.training import resume_checks
from duetto.training.callbacks import CallbackList
from duetto.training.diagnostics import check_finite
from duetto.training.evaluations import Evaluations

if TYPE_CHECKING:
    from duetto.training.trainer import Trainer


class Checkpoints:
    """The checkpoints of one trainer.

    Attributes:
        store: Where they are written.
        last: Step and updates of the last one, or None.
        newest: The folder of the last one.
        changed: The options that differ from those of the checkpoint that the run went on from; this was accepted.
        horizon: Step at which schedules ended in the checkpoint that the run went on from; 0 where it does not say.
        inexact: Sentences on why the run does not go on from there as one that was never interrupted.
    """

    def __init__(
        self, trainer: Trainer, store: CheckpointStore, callbacks: CallbackList, evaluations: Evaluations
    ) -> None:
        self._trainer, self._callbacks, self._evaluations = trainer, callbacks, evaluations
        self.store: CheckpointStore = store
        self.last: tuple[int, int] | None = None
        self.newest: Path | None = None
        self.changed: Diff = {}
        self.horizon: int = 0
        self.inexact: list[str] = []
        self._versions = packages(trainer.config.run.backend)

    @property
    def step(self) -> int | None:
        """The step of the last checkpoint, or None."""
        return None if self.last is None else self.last[0]

    @property
    def up_to_date(self) -> bool:
        """Whether no step and no update was made since the last checkpoint."""
        return self.last == (self._trainer.step, self._trainer.learner.updates)

    def make(self) -> Path:
        """Write a checkpoint and return its folder.

        Raises: as `Trainer.checkpoint`, through which all others call it.
        """
        trainer = self._trainer
        state = self.state_dict()
        check_finite(state["learner"]["parameters"])
        window = (trainer.memory.written, trainer.memory.rows)
        with trainer.in_its_folder():
            path = self.store.save(trainer.step, state, trainer.memory.segment(self.store.covered), window)
            self.store.settle_best()
        self.last, self.newest = (trainer.step, trainer.learner.updates), path
        trainer.parts.look_at_saved(state["stepper"])
        return path

    def acting_state(self) -> dict[str, Any]:
        """The state that acting needs, and the options that decided its numbers."""
        return {"config": deciding(self._trainer.config)} | self._trainer.parts.acting_state()

    def state_dict(self) -> dict[str, Any]:
        """Everything that the rest of the run depends on, except the memory's transitions."""
        trainer = self._trainer
        evaluations = self._evaluations.state_dict()  # first: it may end one, which writes and calls back
        return self.acting_state() | {
            "log": trainer.log.state_dict(),  # before the others: it waits for the device and finds a divergence
            **trainer.parts.state_dict(),
            "evaluations": self._evaluations.table.mark,
            "callbacks": self._callbacks.state_dict(),
            "trainer": {
                "step": trainer.step,
                **evaluations,
                "seconds": trainer.seconds,
            },
            "run": resume_checks.run_state(trainer.config, trainer.learner),
            "versions": self._versions,
        }

    def load(self, loaded: Loaded, without_memory: bool = False, accept_changes: bool = False) -> None:
        """Go on from a checkpoint. What logs and tables hold from after it is dropped.

        `without_memory` is for a checkpoint that was loaded without its experience.

        Raises:
            UsageError: The config decides other numbers than the checkpoint's, and `accept_changes` is not given.
            CheckpointError: It changes what cannot change in a run that has begun.
        """
        trainer = self._trainer
        changed = self.changed = resume_checks.accepted(loaded, trainer.config, trainer.folder, accept_changes)
        self.inexact = resume_checks.notes_of_others(loaded, self._versions)
        notes = resume_checks.notes_of_changes(loaded, changed, trainer.config.run.threads)
        notes += self.inexact
        try:
            self._restore(loaded, changed, without_memory)
        except CheckpointError as error:
            if changed:
                raise CheckpointError(
                    f"The run cannot go on with what has changed: {sentence(changed)}. {error} With the old values "
                    f"back it goes on; a new run can begin from this one's networks, if they fit (--from "
                    f"{trainer.folder})."
                ) from error
            raise
        trainer.notices += notes

    def _restore(self, loaded: Loaded, changed: Diff, without_memory: bool) -> None:
        trainer, parts, state = self._trainer, self._trainer.parts, loaded.state
        resume_checks.check_spaces(state["spaces"], trainer.stepper)
        if without_memory:
            state, note = resume_checks.with_empty_memory(state, trainer.config, trainer.memory)
            trainer.notices.append(note)
            self.inexact.append(note)
        another = not ENVIRONMENT.isdisjoint(changed)
        if another:
            state = resume_checks.with_new_episodes(state)
        parts.load_state_dict(state, loaded.segments)
        if "algorithm.temperature" in changed:
            parts.set_fixed()
        self._callbacks.expect(state.get("callbacks", {}))  # pushed runs have none
        trainer.step, trainer.seconds = state["trainer"]["step"], state["trainer"]["seconds"]
        self.last, self.newest = (trainer.step, trainer.learner.updates), loaded.path
        trainer.notices += loaded.problems
        self._cut_back(state)
        same = resume_checks.BACKEND not in changed
        trainer.notices += resume_checks.notes_of_run(state["run"], trainer.learner, trainer.config.run.threads, same)
        self.horizon = state["run"]["horizon"]
        if trainer.stepper.resumed_exactly:
            return
        parts.interrupt(~trainer.stepper.restored)
        if not (another or without_memory):
            self.inexact.append(self._new_episodes())
            trainer.notices.append(self.inexact[-1])

    def _new_episodes(self) -> str:
        """Say which environments could not be restored, and why."""
        stepper = self._trainer.stepper
        lost, n = int((~stepper.restored).sum()), stepper.num_envs
        which = stepper.name if lost == n else f"{lost} of the {n} environments {stepper.name}"
        because = f" ({'; '.join(stepper.not_restored)})" if stepper.not_restored else ""
        return (
            f"The state of {which} could not be restored{because}: the run goes on with new episodes, so from here it "
            "is not the same, number by number, as one that was never interrupted."
        )

    def _cut_back(self, state: dict[str, Any]) -> None:
        """Drop what logs and tables hold from after the checkpoint."""
        trainer, log = self._trainer, self._trainer.log
        log.load_state_dict(state["log"])
        files = ((log.lines, state["log"]["position"]), (self._evaluations.table, state["evaluations"]))
        trainer.notices += filter(None, (file.return_to(mark, trainer.step) for file, mark in files))
        trainer.notices += self._evaluations.load_state_dict(state["trainer"])
        log.go_on_from_file(self._evaluations.written())
