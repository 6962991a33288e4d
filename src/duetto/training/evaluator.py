"""The evaluations of a run: their environments, the table of results, and the best parameters.

An evaluation depends on the parameters alone, so one that Ctrl-C broke off is repeated by the resumed run with the same
numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from duetto import environments
from duetto.errors import CheckpointError, UsageError
from duetto.functional.state_schema import OptionalOf
from duetto.networks import spaces
from duetto.storage.checkpoint import CheckpointStore
from duetto.storage.config import RunOptions
from duetto.storage.logs import Csv
from duetto.training.evaluation import PARALLEL, Evaluation, evaluate
from duetto.training.policy import EvaluationPolicy

FIELDS = ("step", "mean_return", "std_return", "min_return", "max_return", "mean_length", "episodes", "seconds")
FIELDS += ("success_rate",)


class EvaluationInterruptedError(Exception):
    """Raised by `tell` to break off an evaluation."""


class Evaluator:
    """Evaluates the policy of one run, and records the results.

    Attributes:
        last: The step of the newest evaluation, and its result; or None.
        table: The table of results.
        due: Whether the evaluation of the current step was broken off.
    """

    STATE: ClassVar[dict[str, Any]] = {"lines": int, "best": OptionalOf(float), "best_step": int, "due": bool}

    def __init__(
        self,
        options: RunOptions,
        trained: environments.VecEnv,
        make: Callable[[int], environments.VecEnv],
        remakes: bool,
        table: Csv,
        store: CheckpointStore,
    ) -> None:
        """Prepare evaluations.

        Args:
            options: The options of the run.
            trained: The environments of training, whose spaces the others must have.
            make: Makes so many environments.
            remakes: Whether each evaluation makes them anew. This is for an environment that was passed as an object,
                which a callback may have changed, as in a curriculum.
            table: The table of results.
            store: The store of the best parameters.
        """
        self._options, self._trained, self._make, self._remakes = options, trained, make, remakes
        self.table: Csv = table
        self._store = store
        self._vec_env: environments.VecEnv | None = None
        self.last: tuple[int, Evaluation] | None = None
        self.due: bool = False
        self._best: float | None = None
        self._best_step = 0

    def evaluate(
        self, policy: EvaluationPolicy, step: int, seconds: float, acting: dict[str, Any], tell: Callable[[str], None]
    ) -> Evaluation:
        """Evaluate the policy of a step, and record the result. `acting` is the state that acting needs.

        Raises EvaluationInterruptedError if `tell` does.
        """
        self.due = True
        result = evaluate(policy, self._environments(), self._options.evaluation_episodes, self._options.seed, tell)
        self.due, self.last = False, (step, result)
        about = {"step": step, "episodes": len(result.returns), "seconds": round(seconds, 1)}
        self.table.append(about | result.numbers())
        if self._is_best(step, result.mean_return):
            self._best, self._best_step = result.mean_return, step
            self._store.save_best(step, acting, {"mean_return": result.mean_return})
        return result

    def _environments(self) -> environments.VecEnv:
        before = self._vec_env
        if before is not None and not self._remakes:
            return before
        made: environments.VecEnv | None = None
        try:
            made = self._make(min(self._options.evaluation_episodes, PARALLEL))
            check_same_spaces(made, self._trained.observation_space, self._trained.action_space)
        except UsageError as error:
            if made is not None:
                made.close()
            raise UsageError(f"{error} Or train without evaluations: evaluate_every=0.") from error
        made.name += " (evaluation)"
        self._vec_env = made
        if before is not None:
            before.close()
        return made

    def _is_best(self, step: int, mean_return: float) -> bool:
        """Whether this is the best so far: of equals the first, but any later one rather than that of step 0."""
        if self._best is None or mean_return > self._best:
            return True
        return mean_return == self._best and self._best_step == 0 < step

    def keep_best(self) -> None:
        """Remove all parameters except the best, after a checkpoint recorded them."""
        if self._best is not None:
            self._store.keep_best(self._best_step)

    def written(self) -> int:
        """The step of the last row in the table; -1 if there is none."""
        rows = Csv.scan(self.table.path).rows
        return int(float(rows[-1]["step"])) if rows else -1

    def close(self) -> None:
        """Release the environments."""
        if self._vec_env is not None:
            self._vec_env.close()

    def state_dict(self) -> dict[str, Any]:
        """The best return, and whether an evaluation is due; `lines` is the length of the table."""
        return {"lines": self.table.synced_lines(), "best": self._best, "best_step": self._best_step, "due": self.due}

    def load_state_dict(self, state: dict[str, Any], step: int) -> list[str]:
        """Undo `state_dict`, and drop the rows and the best parameters of later evaluations.

        Returns sentences on what was damaged.
        """
        self.table.cut_back(state["lines"])
        notices: list[str] = []
        self._best, self._best_step, self.due = state["best"], state["best_step"], state["due"]
        if self._best is None:
            return notices
        self.keep_best()
        try:
            self._store.load_best()
        except CheckpointError as error:
            notices.append(
                f"{error} The best until step {step:,} had the mean return {self._best:.6g}; now the next "
                "evaluation's become the best."
            )
            self._best = None
        return notices


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
