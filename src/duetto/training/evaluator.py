"""A run's evaluations: the one under way, the table of results and the best parameters.

    in this process            step s | its episodes | its row | step s + 1 ...
    on a cluster               step s | step s + 1 ... ........ | its row, of step s, when the result arrives
    the evaluator's process         | its episodes, with the parameters of step s ...

At most one evaluation is under way: the next one, a checkpoint of a later step and the end of the run wait for it. A
checkpoint of the same step says that one is under way, and a resumed run repeats it: an evaluation depends on the
parameters alone, so it gives the same numbers. Ctrl-C breaks off an evaluation in this process; it stays under way.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Protocol

from duetto import environments
from duetto.errors import CheckpointError, UsageError
from duetto.functional.state_schema import ANY, OptionalOf
from duetto.learners.parameters import Parameters
from duetto.networks import spaces
from duetto.storage.checkpoint import CheckpointStore
from duetto.storage.config import RunOptions
from duetto.storage.logs import Csv
from duetto.training.evaluation import PARALLEL, Evaluation, evaluate
from duetto.training.metrics import MetricLog
from duetto.training.policy import EvaluationPolicy

FIELDS = ("step", "mean_return", "std_return", "min_return", "max_return", "mean_length", "episodes", "seconds")
FIELDS += ("success_rate",)
ON_BOARD = ("mean_return", "mean_length", "success_rate")  # fields that TensorBoard shows
POLL_SECONDS = 0.2  # between two looks for the result of another process
MOST_DROPPED = 4  # best parameters that a lost part of a run may have left


class Evaluator(Protocol):
    """Runs evaluations: here, or in another process while the run continues."""

    def begin(self, parameters: Parameters, scaling: dict[str, Any]) -> None:
        """Start an evaluation of these parameters, with the normalizer's state. None may be under way."""
        ...

    def look(self, wait: bool) -> Evaluation | None:
        """The result; None if it is broken off, or if it is not finished and `wait` is False.

        Raises EnvironmentFailedError if its environment has failed.
        """
        ...

    def close(self) -> None:
        """Release the evaluator's environments."""
        ...


class EvaluationInterruptedError(Exception):
    """Raised by a `LocalEvaluator`'s `tell` to break off the evaluation."""


class LocalEvaluator:
    """An evaluator in this process, which evaluates the current policy when it is looked at."""

    def __init__(
        self,
        options: RunOptions,
        trained: environments.VecEnv,
        make: Callable[[int], environments.VecEnv],
        remakes: bool,
        policy: Callable[[], EvaluationPolicy],
        tell: Callable[[str], None],
        notices: list[str],
    ) -> None:
        """`make` makes so many environments, of the same spaces as those that are `trained` in.

        With `remakes`, for an environment that was handed over as an object, each evaluation copies it as it is then: a
        callback may have changed it, as in a curriculum.
        """
        self._options, self._trained, self._make, self._remakes = options, trained, make, remakes
        self._policy, self._tell, self._notices = policy, tell, notices
        self._vec_env: environments.VecEnv | None = None
        self._begun = False

    def begin(self, parameters: Parameters, scaling: dict[str, Any]) -> None:
        """Note that the next look evaluates."""
        self._begun = True

    def look(self, wait: bool) -> Evaluation | None:
        """Evaluate, unless nothing was started."""
        if not self._begun:
            return None
        self._begun = False
        options = self._options
        try:
            return evaluate(self._policy(), self._environments(), options.evaluation_episodes, options.seed, self._tell)
        except EvaluationInterruptedError:
            return None

    def _environments(self) -> environments.VecEnv:
        before = self._vec_env
        if before is not None and not self._remakes:
            return before
        try:
            self._vec_env = self._made()
        except UsageError as error:
            if before is None:
                raise
            self._notices.append(f"Evaluations stay in earlier copies of the environment: {error}")
            return before
        if before is not None:
            before.close()
        return self._vec_env

    def _made(self) -> environments.VecEnv:
        made = self._make(min(self._options.evaluation_episodes, PARALLEL))
        if self._options.engine != "envpool":  # whose spaces are written otherwise than Gymnasium's
            try:
                check_same_spaces(made, self._trained.observation_space, self._trained.action_space)
            except UsageError:
                made.close()
                raise
        made.name += " (evaluation)"
        return made

    def close(self) -> None:
        """Release the environments."""
        if self._vec_env is not None:
            self._vec_env.close()


class Snapshot(NamedTuple):
    """The policy that an evaluation is of."""

    step: int
    updates: int
    seconds: float  # of the run until then
    acting: dict[str, Any]  # the state that acting needs


class Evaluations:
    """The evaluations of one run.

    Attributes:
        under_way: The policy that is being evaluated, or None.
        last: The step of the newest evaluation, and its result; or None.
    """

    STATE: ClassVar[dict[str, Any]] = {"position": ANY, "best": OptionalOf(float), "best_step": int, "under_way": bool}

    def __init__(self, evaluator: Evaluator, table: Csv, store: CheckpointStore, log: MetricLog) -> None:
        self._evaluator, self._table, self._store, self._log = evaluator, table, store, log
        self.under_way: Snapshot | None = None
        self.last: tuple[int, Evaluation] | None = None
        self._best: float | None = None
        self._best_step = 0
        self._looked = 0.0

    def begin(self, snapshot: Snapshot) -> None:
        """Start an evaluation; none may be under way."""
        self.under_way, self._looked = snapshot, 0.0
        self._evaluator.begin(snapshot.acting["learner"]["parameters"], snapshot.acting["normalizer"])

    def look(self, wait: bool) -> bool:
        """Write down the result of the evaluation under way; return whether it is finished.

        `wait`: wait for it, unless it was broken off.
        """
        now = time.monotonic()
        if self.under_way is None or not (wait or now - self._looked >= POLL_SECONDS):
            return False
        self._looked = now
        result = self._evaluator.look(wait)
        if result is not None:
            self._record(result, self.under_way)
        return result is not None

    def _record(self, result: Evaluation, snapshot: Snapshot) -> None:
        self.under_way, self.last = None, (snapshot.step, result)
        numbers = result.numbers()
        about = {"step": snapshot.step, "episodes": len(result.returns), "seconds": round(snapshot.seconds, 1)}
        self._table.append(about | numbers)
        if self._is_best(snapshot.step, result.mean_return):
            self._best, self._best_step = result.mean_return, snapshot.step
            self._store.save_best(snapshot.step, snapshot.acting, {"mean_return": result.mean_return})
        self._log.to_board(snapshot.step, {f"evaluation/{name}": numbers[name] for name in ON_BOARD})

    def _is_best(self, step: int, mean_return: float) -> bool:
        """Whether this is the best so far: of equals the first, but any later one rather than that of step 0."""
        if self._best is None or mean_return > self._best:
            return True
        return mean_return == self._best and self._best_step == 0 < step

    def written(self) -> int:
        """The step of the last row in the table; -1 if there is none."""
        rows = Csv.scan(self._table.path).rows
        return int(float(rows[-1]["step"])) if rows else -1

    def state_dict(self) -> dict[str, Any]:
        """The best return, and whether an evaluation is under way; `position` is where the table ends."""
        return {
            "position": self._table.mark,
            "best": self._best,
            "best_step": self._best_step,
            "under_way": self.under_way is not None,
        }

    def load_state_dict(self, state: dict[str, Any], step: int) -> list[str]:
        """Undo `state_dict`, and drop the rows and the best parameters of later evaluations.

        The caller must start the evaluation that was under way again. Returns sentences on what was damaged.
        """
        notice = self._table.return_to(state["position"], step)
        notices = [notice] if notice else []
        self._best, self._best_step = state["best"], state["best_step"]
        if self._best is None:
            return notices
        try:
            for _ in range(MOST_DROPPED):
                if self._store.load_best().step <= self._best_step:
                    break
                self._store.drop_best()
            self._store.settle_best(self._store.load_best().path)
        except CheckpointError as error:
            notices.append(
                f"{error} The best until step {step:,} had the mean return {self._best:.6g}; now the next "
                "evaluation's become the best, whatever their return."
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
