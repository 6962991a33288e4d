"""Record whole episodes that an expert plays, and replay a recorded episode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import NamedTuple, Protocol

import numpy as np

from duetto.demonstrations.types import Demonstration, limits
from duetto.environments import Transition, Tree, VecEnv
from duetto.errors import UsageError
from duetto.functional.pytree import tree_map_many
from duetto.networks import masks

MOST_TRIES = 20  # stop if fewer than one of 20 episodes is kept


class Expert(Protocol):
    """The interface of an expert: an agent, a script or a person."""

    def __call__(self, obs: Tree, starts: np.ndarray) -> np.ndarray:
        """Return actions (N, ...) for observations (N, ...). `starts` (N,) is True where an episode starts."""
        ...

    def rewarded(self, reward: np.ndarray, env: np.ndarray) -> None:
        """Receive `reward` (K,), the rewards of the last actions in the environments with the numbers `env` (K,)."""


class RecordingEndedError(Exception):
    """Raised by an expert to end the recording. Episodes that have already ended are kept."""


class RecordedGame(NamedTuple):
    """A whole episode of the environment: its seed, undiscounted return, and demonstrations.

    With Atari's `episodic_life`, it has a demonstration for each life. Otherwise it has one.
    """

    seed: int
    score: float
    demonstrations: list[Demonstration]


def record(
    expert: Expert, stepper: VecEnv, episodes: int, seed: int, keep: Callable[[float], bool] = lambda score: True
) -> Iterator[RecordedGame]:
    """Yield `episodes` whole episodes in the order of their seeds: seed, seed + 1, ...

    An episode is skipped if `keep(score)` is False; an episode with a later seed replaces it. The result does not
    depend on the number of environments.

    Raises:
        UsageError: `keep` rejects nearly all episodes.
    """
    if episodes < 1:
        raise UsageError(f"episodes is {episodes}; it must be at least 1.")
    kept = 0
    for tried in count():
        if kept == episodes:
            return
        if tried >= MOST_TRIES * (kept + 1):
            raise UsageError(
                f"Only {kept} of {tried} episodes were good enough to be kept. Relax --minimum-return or "
                "--only-successes, or use a better expert."
            )
        game = _play(expert, stepper, seed + tried)
        if keep(game.score):
            kept += 1
            yield game


def _play(expert: Expert, stepper: VecEnv, seed: int) -> RecordedGame:
    """Play one game. An episode's end, or a lost life with `episodic_life`, ends a demonstration."""
    stepper.reset(seed)
    steps: list[Transition] = []
    demonstrations: list[Demonstration] = []
    while True:
        transition, ended = stepper.step(expert(stepper.obs, stepper.starts))
        expert.rewarded(transition.reward, transition.env)
        steps += [transition] * len(transition.env)  # none if the environment was only reset
        if np.any(transition.terminated | transition.truncated):
            demonstrations.append(_cut(steps, *limits(stepper.action_space)))
            steps = []
        if ended:
            return RecordedGame(seed, ended[0].total_reward, demonstrations)


def _cut(steps: list[Transition], low: np.ndarray, high: np.ndarray) -> Demonstration:
    """Return a demonstration of these steps. Clip actions to their bounds, as the environment does."""
    trees = [*(step.obs for step in steps), steps[-1].next_obs]
    obs: Tree = tree_map_many(np.concatenate, [masks.split_mask(tree)[0] for tree in trees])
    action, reward, terminated, truncated = (
        np.concatenate([getattr(step, name) for step in steps])
        for name in ("action", "reward", "terminated", "truncated")
    )
    if action.dtype.kind == "f":
        action = np.clip(action, low, high, dtype=action.dtype)
    return Demonstration(obs, action, reward.astype(np.float32), bool(terminated[-1]), bool(truncated[-1]))
