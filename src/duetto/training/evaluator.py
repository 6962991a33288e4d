"""The evaluations of a run: their environments, the table of results, and the best parameters.

An evaluation depends on the parameters alone.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from duetto import environments
from duetto.errors import CheckpointError, DuettoError, UsageError
from duetto.functional.state_schema import OptionalOf
from duetto.networks import spaces
from duetto.storage.checkpoint import CheckpointStore
from duetto.storage.config import RunOptions
from duetto.storage.logs import Csv
from duetto.training.evaluation import PARALLEL, Evaluation, evaluate
from duetto.training.policy import EvaluationPolicy

FIELDS = ("step", "mean_return", "std_return", "min_return", "max_return", "mean_length", "episodes", "seconds")
FIELDS += ("success_rate",)


class Evaluator:
    """Evaluates the policy of one run, and records the results.

    Attributes:
        last: The step of the newest evaluation, and its result; or None.
        table: The table of results.
    """

    STATE: ClassVar[dict[str, Any]] = {"lines": int, "best": OptionalOf(float), "best_step": int}

    def __init__(
        self,
        options: RunOptions,
        trained: environments.VecEnv,
        make: Callable[..., environments.VecEnv],
        folder: Path,
        store: CheckpointStore,
    ) -> None:
        """Prepare evaluations.

        Args:
            options: The options of the run.
            trained: The environments of training, whose spaces the others must have.
            make: Makes `num_envs` environments.
            folder: The run's folder.
            store: The store of the best parameters.
        """
        self._options, self._trained, self._make = options, trained, make
        self.table: Csv = Csv(folder / "evaluations.csv", FIELDS)
        self._store = store
        self._vec_env: environments.VecEnv | None = None
        self.last: tuple[int, Evaluation] | None = None
        self._best: float | None = None
        self._best_step = 0

    def evaluate(
        self, policy: EvaluationPolicy, step: int, seconds: float, acting: dict[str, Any], tell: Callable[[str], None]
    ) -> Evaluation:
        """Evaluate the policy of a step, and record the result. `acting` is the state that acting needs."""
        result = evaluate(policy, self._environments(), self._options.evaluation_episodes, self._options.seed, tell)
        self.last = (step, result)
        about = {"step": step, "episodes": len(result.returns), "seconds": round(seconds, 1)}
        self.table.append(about | result.numbers())
        # Of equal returns the first is the best, but any later one rather than that of step 0.
        if self._best is None or (result.mean_return, step > 0) > (self._best, self._best_step > 0):
            self._best, self._best_step = result.mean_return, step
            self._store.save_best(step, acting, {"mean_return": result.mean_return})
        return result

    def _environments(self) -> environments.VecEnv:
        if self._vec_env is not None:
            return self._vec_env
        made: environments.VecEnv | None = None
        try:
            made = self._make(num_envs=min(self._options.evaluation_episodes, PARALLEL))
            check_same_spaces(made, self._trained.observation_space, self._trained.action_space)
        except UsageError as error:
            if made is not None:
                made.close()
            raise UsageError(f"{error} Or train without evaluations: evaluate_every=0.") from error
        made.name += " (evaluation)"
        self._vec_env = made
        return made

    def keep_best(self) -> None:
        """Remove all parameters except the best, after a checkpoint recorded them."""
        if self._best is not None:
            self._store.keep_best(self._best_step)

    def written(self) -> int:
        """The step of the last row in the table; -1 if there is none."""
        rows = Csv.scan(self.table.path).rows
        return int(float(rows[-1]["step"])) if rows else -1

    def close(self) -> None:
        """Release the environments, and close the table."""
        self.table.close()
        if self._vec_env is not None:
            self._vec_env.close()

    def state_dict(self) -> dict[str, Any]:
        """The best return; `lines` is the length of the table."""
        return {"lines": self.table.synced_lines(), "best": self._best, "best_step": self._best_step}

    def load_state_dict(self, state: dict[str, Any], step: int) -> list[str]:
        """Undo `state_dict`, and drop the rows and the best parameters of later evaluations.

        Returns sentences on what was damaged.
        """
        notices = self.table.cut_back(state["lines"])
        self._best, self._best_step = state["best"], state["best_step"]
        if self._best is None:
            return notices
        self.keep_best()
        try:
            self._store.load_best()
        except CheckpointError as error:
            notices.append(f"{error} The next evaluation's become the best.")
            self._best = None
        return notices


def check_same_spaces(
    stepper: environments.VecEnv,
    observation: spaces.Space,
    action: spaces.Space,
    error: type[DuettoError] = UsageError,
) -> None:
    """Raise the error if the environment has other spaces than these, which the agent was trained with."""
    for kind, theirs, ours in (
        ("observation", stepper.observation_space, observation),
        ("action", stepper.action_space, action),
    ):
        if apart := spaces.describe_difference(kind, theirs, ours):
            raise error(
                f"{stepper.name} has the {kind} space {apart[0]}; the agent was trained with {apart[1]}. Choose an "
                "environment of the same spaces, or the run's options of it."
            )
