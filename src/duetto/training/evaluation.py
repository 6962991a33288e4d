"""How good the policy is: whole episodes on environments of their own, without exploration.

The protocol of TD3's authors: fixed steps, step 0 included, and the same initial states every time (episode k of every
evaluation starts from seed + 100 + k). So an evaluation depends on the parameters alone, not on the ones before it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NamedTuple

import numpy as np

from duetto.algorithms.base import Tree
from duetto.environments import Episode, Stepper
from duetto.training.policy import Policy

PARALLEL = 10  # environments at most; more would not be faster
SEED_OFFSET = 100


Act = Policy | Callable[[Tree], np.ndarray]  # actions (N, ...) for observations (N, ...)


class Evaluation(NamedTuple):
    """Undiscounted returns of the environment's own rewards, and lengths, of whole episodes in order of their seeds."""

    returns: np.ndarray  # (episodes,) float64
    lengths: np.ndarray  # (episodes,) int64

    @property
    def mean_return(self) -> float:
        """Mean over the episodes."""
        return float(self.returns.mean())

    @property
    def std_return(self) -> float:
        """Population standard deviation over the episodes."""
        return float(self.returns.std())

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "mean_return": self.mean_return,
            "std_return": self.std_return,
            "returns": self.returns.tolist(),
            "lengths": self.lengths.tolist(),
        }

    def __str__(self) -> str:
        plural = "" if len(self.returns) == 1 else "s"
        return f"{self.mean_return:.1f} ± {self.std_return:.1f} over {len(self.returns)} episode{plural}"


def evaluate(
    act: Act, stepper: Stepper, episodes: int, seed: int, tell: Callable[[str], None] = lambda _: None
) -> Evaluation:
    """Run episodes 0 .. episodes-1, several side by side, each in an environment reset with its own seed.

    `tell` gets a few words now and then on how far it is.
    """
    steps = evaluating(act, stepper, episodes, seed)
    while True:
        try:
            tell(next(steps))
        except StopIteration as ended:
            return ended.value


def evaluating(act: Act, stepper: Stepper, episodes: int, seed: int) -> Generator[str, None, Evaluation]:
    """`evaluate`, a vector step at a time: before each a few words on how far it is."""
    began = stepper.steps
    returns, lengths = np.zeros(episodes), np.zeros(episodes, np.int64)
    stepper.reset(seed + SEED_OFFSET)
    running = {env: env for env in range(min(stepper.num_envs, episodes))}  # environment to the episode it runs
    upcoming = len(running)
    while running:
        done = min(upcoming, episodes) - len(running)
        yield f"evaluating: {done} of {episodes} episodes, step {stepper.steps - began:,} of those that run"
        ended = _step(act, stepper)
        for episode in ended:
            if episode.env not in running:
                continue
            number = running.pop(episode.env)
            returns[number], lengths[number] = episode.total_reward, episode.length
            if upcoming < episodes:
                stepper.reset_env(episode.env, seed + SEED_OFFSET + upcoming)
                running[episode.env] = upcoming
                upcoming += 1
    return Evaluation(returns, lengths)


def watch(act: Act, stepper: Stepper, seed: int, on_frame: Callable[[np.ndarray, Tree], None] | None = None) -> Episode:
    """Run one episode of the first environment and hand every rendered frame (H, W, 3) uint8 to `on_frame`, with the
    observation (1, ...) that the policy acts on. Without it, the environment shows itself, or nobody looks.
    """
    (stepper.show if on_frame is None else stepper.reset)(seed + SEED_OFFSET)
    while True:
        if on_frame is not None:
            on_frame(stepper.render(), stepper.obs)
        ended = _step(act, stepper)
        if ended:
            return ended[0]


def _step(act: Act, stepper: Stepper) -> list[Episode]:
    if not isinstance(act, Policy):
        return stepper.step(act(stepper.obs))[1]
    transition, ended = stepper.step(act(stepper.obs, stepper.starts))
    act.rewarded(transition.reward, transition.env)
    return ended
