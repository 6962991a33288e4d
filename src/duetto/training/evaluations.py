"""A run's evaluations: where they are made, and what is written of each.

    in this process     step s | its episodes | its row | step s + 1 ...
    beside the run      step s | step s + 1 ... ........ | its row, of step s, where its result was found
    elsewhere                  | its episodes, with the parameters of step s ...

At most one is under way: the next one, a checkpoint of a later step and the end of the run wait for it. A checkpoint of
the same step says that one is under way, and a run that goes on from there makes it again. An evaluation depends on the
parameters alone, so it gives the same numbers.

A run that is stopped is evaluated after its last checkpoint, and that result is of this end alone: a run that goes on
from there drops its row, and its parameters if they are the best.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

from duetto import environments
from duetto.errors import CheckpointError, UsageError
from duetto.networks import spaces
from duetto.storage.logs import Csv
from duetto.training.evaluation import PARALLEL, Evaluation, evaluate

if TYPE_CHECKING:
    from duetto.training.execution import Evaluator
    from duetto.training.trainer import Trainer

FIELDS = ("step", "mean_return", "std_return", "min_return", "max_return", "mean_length", "episodes", "seconds")
FIELDS += ("success_rate",)
LOOK = 0.2  # seconds between two looks at one that is made beside the run
MOST_DROPPED = 4  # best parameters that a lost part of a run may have left
STOPPED = "stopped"  # in the info of the best parameters: they are of the end of a run that was stopped


class UnderWay(NamedTuple):
    """An evaluation that has begun."""

    step: int
    updates: int
    seconds: float  # of the run until then
    acting: dict[str, Any]  # the trainer's acting state


class Evaluations:
    """The evaluations of one trainer.

    Attributes:
        last: The step of the newest evaluation, and its result; or None.
        best: The highest mean return, or None.
        interrupted: Whether somebody waits for the run to end: an evaluation under way in this process is broken off,
            or says that it comes first.
    """

    def __init__(self, trainer: Trainer, table: Csv, beside: Evaluator | None, announce: Callable[[], None]) -> None:
        """`beside` makes evaluations beside the run, None: this process does; `announce` is called after each."""
        self._trainer, self._beside, self._announce = trainer, beside, announce
        self.table: Csv = table
        self.last: tuple[int, Evaluation] | None = None
        self.best: float | None = None
        self.interrupted: bool = False
        self._whole = False
        self._best_step = 0
        self._at: tuple[int, int] | None = None  # step and updates of the policy that was evaluated last
        self._concluding: Callable[[], bool] | None = None
        self._stepper: environments.VecEnv | None = None  # in this process
        self._under_way: UnderWay | None = None
        self._again = False
        self._looked = 0.0
        self._copied = 0  # the step at which the environments in this process were made

    @property
    def under_way(self) -> int | None:
        """The step of the evaluation that is under way, or None."""
        return None if self._under_way is None else self._under_way.step

    def begin(self, whole: bool = False) -> None:
        """Evaluate the policy as it is now: beside the run, or at once.

        A user who ends the run may not wait long, and what was learned since the last checkpoint is worth more. So an
        evaluation in this process is then broken off, unless it is to be `whole`, and the next checkpoint says that it
        is under way.
        """
        self.finish()
        trainer = self._trainer
        acting = trainer.checkpoints.acting_state()
        self._under_way = UnderWay(trainer.step, trainer.learner.updates, trainer.seconds, acting)
        if self._beside is not None:
            self._beside.begin(acting["learner"]["parameters"], acting["normalizer"])
            return
        self._whole = whole
        try:
            self._write(self._here())
        except _BrokenOffError:
            if self._concluding is not None:
                raise
            trainer.notices.append(
                f"The evaluation at step {trainer.step:,} was broken off: duetto resume makes it, or duetto evaluate."
            )

    def conclude(self, unwanted: Callable[[], bool]) -> None:
        """Evaluate the last policy of a run that was stopped, after its last checkpoint, if that was not done yet.

        The evaluation is broken off if `unwanted` returns True meanwhile.
        """
        trainer = self._trainer
        if self._at == (trainer.step, trainer.learner.updates):
            return
        self._concluding = unwanted
        try:
            self.begin()
            self.finish()
        except _BrokenOffError:
            trainer.notices.append("The evaluation of the last policy was broken off: duetto evaluate makes one.")
        finally:
            self._under_way = self._concluding = None

    def look(self) -> None:
        """Write down the evaluation beside the run, if it is finished."""
        now = time.monotonic()
        if self._under_way is not None and self._beside is not None and now - self._looked >= LOOK:
            self._looked = now
            if result := self._beside.look(wait=False):
                self._write(result)

    def finish(self) -> None:
        """Wait for the evaluation that is under way beside the run, if any, and write it down."""
        if self._under_way is not None and self._beside is not None:
            self._trainer.on_activity("waiting for an evaluation")
            result = self._beside.look(wait=True)
            assert result is not None
            self._write(result)

    def _here(self) -> Evaluation:
        trainer, options = self._trainer, self._trainer.config.run
        self._copy_anew()
        stepper = self._stepper or self._make()
        return evaluate(trainer.policy, stepper, options.evaluation_episodes, options.seed, self._tell)

    def _copy_anew(self) -> None:
        """Copy an environment that was handed over as an object, as it is now: a callback may have set something on it,
        as in a curriculum. If it cannot be copied any more, evaluations stay in the last copies.
        """
        before = self._stepper
        if before is None or not self._trainer.is_object:
            return
        try:
            self._make()
            before.close()
        except UsageError as error:
            self._stepper = before
            self._trainer.notices.append(f"Evaluations stay in the copies of step {self._copied:,}: {error}")

    def _make(self) -> environments.VecEnv:
        trainer, options = self._trainer, self._trainer.config.run
        made = trainer.another_environment(num_envs=min(options.evaluation_episodes, PARALLEL))
        if options.engine != "envpool":  # whose spaces are written otherwise than Gymnasium's
            try:
                check_same_spaces(made, trainer.stepper.observation_space, trainer.stepper.action_space)
            except UsageError:
                made.close()
                raise
        made.name += " (evaluation)"
        self._stepper, self._copied = made, trainer.step
        return made

    def _tell(self, how_far: str) -> None:
        if self._concluding is not None and self._concluding():
            raise _BrokenOffError
        if self.interrupted:
            self.interrupted = False
            if not self._whole:
                raise _BrokenOffError
            self._trainer.notices.append(
                "The run stops after this evaluation. A second Ctrl-C (or the same signal) ends it at once, without "
                "what came after its last checkpoint."
            )
        self._trainer.on_activity(how_far)

    def _write(self, result: Evaluation) -> None:
        assert self._under_way is not None
        trainer, (step, updates, seconds, acting) = self._trainer, self._under_way
        self._under_way, self._at = None, (step, updates)
        self.last = (step, result)
        row = {
            "step": step,
            "mean_return": result.mean_return,
            "std_return": result.std_return,
            "min_return": float(result.returns.min()),
            "max_return": float(result.returns.max()),
            "mean_length": float(result.lengths.mean()),
            "episodes": len(result.returns),
            "seconds": round(seconds if self._beside is not None else trainer.seconds, 1),
            "success_rate": result.success_rate,
        }
        with trainer.in_its_folder():
            self.table.append(row)
            shown = ("mean_return", "mean_length", "success_rate")
            trainer.log.to_board(step, {f"evaluation/{name}": row[name] for name in shown})
            if self._is_best(step, result.mean_return):
                self.best, self._best_step = result.mean_return, step
                info = {"mean_return": result.mean_return} | ({STOPPED: True} if self._concluding else {})
                trainer.checkpoints.store.save_best(step, acting, info)
        self._announce()

    def _is_best(self, step: int, mean_return: float) -> bool:
        """Whether this is the best so far: of equals the first, but any later one rather than that of step 0."""
        if self.best is None or mean_return > self.best:
            return True
        return mean_return == self.best and self._best_step == 0 < step

    # ------------------------------------------------------------------------------------------------ checkpoints
    def state_dict(self) -> dict[str, Any]:
        """The state for a checkpoint. An evaluation under way of other parameters is finished first."""
        trainer = self._trainer
        if self._under_way is not None and self._under_way[:2] != (trainer.step, trainer.learner.updates):
            self.finish()
        return {"best": self.best, "under_way": self._under_way is not None or self._again}

    def load_state_dict(self, state: dict[str, Any]) -> list[str]:
        """Undo `state_dict`; returns a sentence if the best parameters are damaged."""
        trainer = self._trainer
        self.best, self._again = state["best"], state["under_way"]
        if self.written() == trainer.step:
            self._at = (trainer.step, trainer.learner.updates)
        try:
            self._best_step = self._drop_best()
        except CheckpointError as error:
            if self.best is None:
                return []
            before, self.best = self.best, None
            return [
                f"{error} The best until step {trainer.step:,} had the mean return {before:.6g}; now the next "
                "evaluation's become the best, whatever their return."
            ]
        return []

    def _drop_best(self) -> int:
        """Go back to the best parameters of the steps that were kept, and return their step; CheckpointError if there
        are none.
        """
        store = self._trainer.checkpoints.store
        for _ in range(MOST_DROPPED):
            found = store.load_best()
            if found.step <= self._trainer.step and not found.info.get(STOPPED):
                break
            store.drop_best()
        found = store.load_best()
        store.settle_best(found.path)  # what was stopped before it did so
        return found.step

    def written(self) -> int:
        """The step of the last row in the table; -1 if there is none."""
        rows = Csv.scan(self.table.path).rows
        return int(float(rows[-1]["step"])) if rows else -1

    def go_on(self) -> bool:
        """Whether an evaluation was under way at the checkpoint and must be made again; asking clears this."""
        again, self._again = self._again, False
        return again

    def close(self) -> None:
        """Release the environments."""
        with ExitStack() as closing:
            for one in (self._beside, self._stepper):
                if one is not None:
                    closing.callback(one.close)


def check_same_spaces(stepper: environments.VecEnv, observation: spaces.Space, action: spaces.Space) -> None:
    """Raise UsageError if an environment for evaluations has other spaces than these, the agent's."""
    for kind, theirs, ours in (
        ("observation", stepper.observation_space, observation),
        ("action", stepper.action_space, action),
    ):
        if apart := spaces.describe_difference(kind, theirs, ours):
            raise UsageError(
                f"{stepper.name} has the {kind} space {apart[0]}; the agent was trained with {apart[1]}. Choose an "
                "environment of the same spaces, or the run's options of it."
            )


class _BrokenOffError(Exception):
    """The evaluation is broken off: nobody waits for it any more."""
