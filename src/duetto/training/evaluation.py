"""Evaluations of the policy: whole episodes in separate environments, by default without exploration.

The protocol of TD3's authors: fixed steps, step 0 included, and the same initial states every time (episode k of every
evaluation starts from seed + 100 + k). So an evaluation depends on the parameters alone, not on the ones before it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from duetto.algorithms.base import Tree
from duetto.environments import Episode, VecEnv
from duetto.environments.rng_state import preserve
from duetto.errors import escaped
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


Act = EvaluationPolicy | Callable[[Tree], np.ndarray]  # actions (N, ...) for observations (N, ...)


class Evaluation(NamedTuple):
    """Whole episodes, in order of their seeds.

    `returns` (episodes,) float64 are undiscounted, of the environment's own rewards; `lengths` (episodes,) int64 are in
    steps. `successes` (episodes,) float64 has 1 where the task was done, 0 where not, and NaN where the episode does
    not say; it is None where none does.
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
