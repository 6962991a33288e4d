"""Evaluations of the policy: whole episodes in separate environments, by default without exploration.

The protocol of TD3's authors: fixed steps, step 0 included, and the same initial states every time (episode k of every
evaluation starts from seed + 100 + k). So an evaluation depends on the parameters alone, not on the ones before it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from duetto.algorithms.base import Tree
from duetto.environments import Episode, VecEnv
from duetto.environments.rng_state import preserve
from duetto.errors import CheckpointError, DuettoError, UsageError, escaped
from duetto.functional.state_schema import OptionalOf
from duetto.networks import spaces
from duetto.storage.checkpoint import CheckpointStore
from duetto.storage.config import RunOptions
from duetto.storage.logs import Csv
from duetto.training.notices import LOGGER
from duetto.training.policy import EvaluationPolicy

PARALLEL = 10  # environments at most; more would not be faster
SEED_OFFSET = 100
# Vector steps without the end of an episode before a warning: the longest usual episodes, Atari's, have 27,000.
PATIENCE = 100_000
ENDLESS = (
    f"no episode has ended for {PATIENCE:,} steps, and an evaluation waits until its episodes end. If they never do, "
    "give the environment a time limit (Gymnasium's max_episode_steps or TimeLimit), or train without evaluations "
    "(--evaluate-every 0, evaluate_every=0)."
)
FIELDS = ("step", "mean_return", "std_return", "min_return", "max_return", "mean_length", "episodes", "seconds")
FIELDS += ("success_rate",)

Act = EvaluationPolicy | Callable[[Tree], np.ndarray]  # actions (N, ...) for observations (N, ...)


class Evaluation(NamedTuple):
    """Whole episodes, in order of their seeds.

    `returns` (episodes,) float64 are undiscounted, of the environment's own rewards; `lengths` (episodes,) int64 are in
    steps. `successes` (episodes,) float64 is 1 for success, 0 for failure and NaN if the episode does not report
    it; it is None if no episode does.
    """

    returns: np.ndarray  # (episodes,) float64
    lengths: np.ndarray  # (episodes,) int64
    successes: np.ndarray | None = None  # (episodes,) float64, 1 where the task was done, NaN if unknown

    @property
    def success_rate(self) -> float | None:
        """The success rate in [0, 1] of episodes that report success; None without a report."""
        return None if self.successes is None else float(np.nanmean(self.successes))

    @property
    def mean_return(self) -> float:
        """Mean return over the episodes."""
        return float(self.returns.mean())

    @property
    def std_return(self) -> float:
        """Population standard deviation of the returns over the episodes."""
        return float(self.returns.std())

    def numbers(self) -> dict[str, float | None]:
        """Return the numbers of the evaluation's row in `evaluations.csv`."""
        return {
            "mean_return": self.mean_return,
            "std_return": self.std_return,
            "min_return": float(self.returns.min()),
            "max_return": float(self.returns.max()),
            "mean_length": float(self.lengths.mean()),
            "success_rate": self.success_rate,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return `numbers`, and the returns and lengths of all episodes, as JSON values."""
        return {**self.numbers(), "returns": self.returns.tolist(), "lengths": self.lengths.tolist()}

    def __str__(self) -> str:
        plural = "" if len(self.returns) == 1 else "s"
        done = "" if self.success_rate is None else f", success {self.success_rate:.2f}"
        return f"{self.mean_return:,.1f} ± {self.std_return:,.1f} over {len(self.returns)} episode{plural}{done}"


@preserve()
def evaluate(
    act: Act, stepper: VecEnv, episodes: int, seed: int, tell: Callable[[str], None] = lambda _: None
) -> Evaluation:
    """Run episodes 0 .. episodes-1, several at a time, each in an environment with its own seed.

    `tell` gets a few words on the progress before each vector step. If no episode ends for very long, the logger warns.
    """
    started = since = stepper.steps
    returns, lengths, successes = np.zeros(episodes), np.zeros(episodes, np.int64), np.full(episodes, np.nan)
    stepper.reset(seed + SEED_OFFSET)
    running = {env: env for env in range(min(stepper.num_envs, episodes))}  # environment to the episode it runs
    upcoming = len(running)
    while running:
        done = min(upcoming, episodes) - len(running)
        tell(f"evaluating: {done} of {episodes} episodes done, step {stepper.steps - started:,}")
        ended = _step(act, stepper)
        if stepper.steps - since == PATIENCE:
            LOGGER.warning("%s: %s", escaped(stepper.name), ENDLESS)
        for episode in ended:
            if episode.env not in running:
                continue
            since = stepper.steps
            number = running.pop(episode.env)
            returns[number], lengths[number] = episode.total_reward, episode.length
            successes[number] = np.nan if episode.success is None else episode.success
            if upcoming < episodes:
                stepper.reset_env(episode.env, seed + SEED_OFFSET + upcoming)
                running[episode.env] = upcoming
                upcoming += 1
    return Evaluation(returns, lengths, None if np.isnan(successes).all() else successes)


@preserve()
def watch(act: Act, stepper: VecEnv, seed: int, on_frame: Callable[[np.ndarray], None] | None = None) -> Episode:
    """Run one episode of the first environment and hand every rendered frame (H, W, 3) uint8 to `on_frame`.

    Without `on_frame` the environment shows itself, if it can.
    """
    (stepper.show if on_frame is None else stepper.reset)(seed + SEED_OFFSET)
    while True:
        if on_frame is not None:
            on_frame(stepper.render())
        ended = _step(act, stepper)
        if ended:
            return ended[0]


def _step(act: Act, stepper: VecEnv) -> list[Episode]:
    if not isinstance(act, EvaluationPolicy):
        return stepper.step(act(stepper.obs))[1]
    transition, ended = stepper.step(act(stepper.obs, stepper.starts))
    act.rewarded(transition.reward, transition.env)
    return ended


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
        make: Callable[..., VecEnv],
        folder: Path,
        store: CheckpointStore,
    ) -> None:
        """Prepare evaluations.

        Args:
            options: The options of the run.
            make: Makes `num_envs` environments.
            folder: The run's folder.
            store: The store of the best parameters.
        """
        self._options, self._make = options, make
        self.table: Csv = Csv(folder / "evaluations.csv", FIELDS)
        self._store = store
        self._vec_env: VecEnv | None = None
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
        # The first of equal returns is the best, except that step 0 loses to any later step.
        if self._best is None or (result.mean_return, step > 0) > (self._best, self._best_step > 0):
            self._best, self._best_step = result.mean_return, step
            self._store.save_best(step, acting, {"mean_return": result.mean_return})
        return result

    def _environments(self) -> VecEnv:
        if self._vec_env is None:
            try:
                self._vec_env = self._make(num_envs=min(self._options.evaluation_episodes, PARALLEL))
            except UsageError as error:
                raise UsageError(f"{error} Or train without evaluations: evaluate_every=0.") from error
            self._vec_env.name += " (evaluation)"
        return self._vec_env

    def keep_best(self) -> None:
        """Remove all parameters except the best, after a checkpoint recorded them."""
        if self._best is not None:
            self._store.keep_best(self._best_step)

    def close(self) -> None:
        """Release the environments, and close the table."""
        self.table.close()
        if self._vec_env is not None:
            self._vec_env.close()

    def state_dict(self) -> dict[str, Any]:
        """The best return; `lines` is the length of the table."""
        return {"lines": self.table.synced_lines(), "best": self._best, "best_step": self._best_step}

    def load_state_dict(self, state: dict[str, Any]) -> list[str]:
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
    stepper: VecEnv,
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
