"""Evaluations of the policy: whole episodes in separate environments, by default without exploration.

The protocol is that of TD3's authors. Evaluations are at fixed steps, including step 0. They use the same initial
states: episode k of every evaluation starts from seed + 100 + k. So the result depends only on the parameters. EnvPool
can seed only the first episode of each environment.
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

PARALLEL = 10  # maximum number of environments; more are not faster
SEED_OFFSET = 100
# Warn if no episode ends in this number of vector steps. Even Atari's long episodes have at most 27,000.
PATIENCE = 100_000
ENDLESS = (
    f"no episode has ended for {PATIENCE:,} steps, and an evaluation waits until its episodes end. If they never end, "
    "give the environment a time limit (Gymnasium's max_episode_steps or TimeLimit). In training, evaluate_every=0 "
    "turns evaluations off."
)
FIELDS = ("step", "mean_return", "std_return", "min_return", "max_return", "mean_length", "episodes", "seconds")
FIELDS += ("success_rate",)

Act = EvaluationPolicy | Callable[[Tree], np.ndarray]  # actions (N, ...) for observations (N, ...)


class Evaluation(NamedTuple):
    """The results of whole episodes, in the order of their seeds.

    Attributes:
        returns: (episodes,) float64, undiscounted sums of unscaled rewards.
        lengths: (episodes,) int64, in steps.
        successes: (episodes,) float64: 1 for success, 0 for failure, NaN for an episode that does not report it. None
            if no episode reports it.
    """

    returns: np.ndarray
    lengths: np.ndarray
    successes: np.ndarray | None = None

    @property
    def success_rate(self) -> float | None:
        """Success rate in [0, 1] of the episodes that report success; None if no episode reports it."""
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
        """Return the results for the evaluation's row in `evaluations.csv`, by column."""
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
    """Run episodes 0 .. episodes-1, several at a time; episode k starts from seed + 100 + k.

    Before each vector step, `tell` gets a short text on the progress. Logs a warning if no episode ends for very long.
    """
    started = since = stepper.steps
    returns, lengths, successes = np.zeros(episodes), np.zeros(episodes, np.int64), np.full(episodes, np.nan)
    stepper.reset(seed + SEED_OFFSET)
    running = {env: env for env in range(min(stepper.num_envs, episodes))}  # for each environment, its episode's number
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
    """Run one episode of the first environment, and pass every rendered frame (H, W, 3) uint8 to `on_frame`.

    Without `on_frame`, the environment opens its own window. Raises UsageError if it cannot.
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
        last: The step and the result of this process's latest evaluation; None before.
        table: The file `evaluations.csv`.
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
            make: Creates `num_envs` environments.
            folder: The run's folder.
            store: Saves the best parameters.
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
        """Evaluate the policy, and record the result. If it is the best, save `acting`, the state that acting needs."""
        result = evaluate(policy, self._environments(), self._options.evaluation_episodes, self._options.seed, tell)
        self.last = (step, result)
        about = {"step": step, "episodes": len(result.returns), "seconds": round(seconds, 1)}
        self.table.append(about | result.numbers())
        # Of equal returns the earliest is the best, except that a later step replaces step 0.
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
        """Remove the saved parameters of all evaluations except the best. Called after a checkpoint has recorded it."""
        if self._best is not None:
            self._store.keep_best(self._best_step)

    def close(self) -> None:
        """Release the environments, and close the table."""
        self.table.close()
        if self._vec_env is not None:
            self._vec_env.close()

    def state_dict(self) -> dict[str, Any]:
        """Return the best return with its step, and the number of rows of `evaluations.csv`."""
        return {"lines": self.table.synced_lines(), "best": self._best, "best_step": self._best_step}

    def load_state_dict(self, state: dict[str, Any]) -> list[str]:
        """Restore the result of `state_dict`, and remove rows and best parameters of later evaluations.

        Returns a message for each damaged file.
        """
        notices = self.table.cut_back(state["lines"])
        self._best, self._best_step = state["best"], state["best_step"]
        if self._best is None:
            return notices
        self.keep_best()
        try:
            self._store.load_best()
        except CheckpointError as error:
            notices.append(f"{error} The next evaluation saves its parameters as the best.")
            self._best = None
        return notices


def check_same_spaces(
    stepper: VecEnv,
    observation: spaces.Space,
    action: spaces.Space,
    error: type[DuettoError] = UsageError,
) -> None:
    """Raise `error` if the environment's spaces differ from the spaces of the agent, `observation` and `action`."""
    for kind, theirs, ours in (
        ("observation", stepper.observation_space, observation),
        ("action", stepper.action_space, action),
    ):
        if apart := spaces.describe_difference(kind, theirs, ours):
            raise error(
                f"{stepper.name} has the {kind} space {apart[0]}; the agent was trained with {apart[1]}. Choose an "
                "environment with the same spaces, or give it the run's environment options."
            )
