"""Hindsight experience replay: replace the goals in a batch (see `algorithms/her.py`).

    steps of one environment     3 4 5 6 7 | 8 9        step 3 is the oldest stored step; step 7 ended its episode

The new goal of step 5 is the goal that one of these steps achieved:

    strategy      steps
    future        5, 6, 7
    final         7
    episode       3, 4, 5, 6, 7

The episode of steps 8 and 9 still runs. It is treated as if it ended with its newest step.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from duetto.algorithms.base import Batch, HindsightSpec
from duetto.algorithms.her import ACHIEVED, DESIRED
from duetto.buffers.episode_storage import MOST_WRITTEN, EpisodeStorage
from duetto.errors import EnvironmentFailedError

EDGES = (-1, 2**63 - 1)  # sentinels before and after all ends of episodes
TOLERANCE = 1e-4  # max relative difference between a recomputed and a stored reward
STRAY = 0.02  # share of items whose rewards may differ: rounding can change a sparse reward near a goal's edge


class HindsightGoals(Protocol):
    """The functions of a goal environment that HER needs. `environments.GoalEnv` implements them.

    Attributes:
        name: The environment's name, for messages.
        changed: Whether a callback has set an attribute of the environment.
    """

    name: str
    changed: bool

    def reward(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        """Return the rewards, (B,) float32. `achieved` and `desired` are goals, (B, ...) each."""
        ...

    def terminated(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray | None:
        """Return whether the task has ended, (B,) bool; None if the environment does not define this."""
        ...


class Relabeling:
    """Replaces goals in a batch, and recomputes the rewards and discounts for the new goals."""

    def __init__(self, spec: HindsightSpec, storage: EpisodeStorage, goals: HindsightGoals, discount: float) -> None:
        """`discount` is γ."""
        self._spec, self._storage, self._goals = spec, storage, goals
        self._discount = np.float32(discount)
        self._ends = np.array(EDGES)  # env * MOST_WRITTEN + number of each step that ends an episode, ascending
        self._ended = -1  # `storage.ended` when `_ends` was computed

    def __call__(self, batch: Batch, index: np.ndarray, random: np.random.Generator) -> Batch:
        """Return the batch with new goals in a share of its items. `index` (B,) has the indices of all items.

        This draws 2 B random numbers.

        Raises:
            EnvironmentFailedError: `compute_reward` disagrees with the rewards that `step` returned.
        """
        chosen = random.random(len(index)) < self._spec.share
        other = self._storage.observation(self._steps(index, random.random(len(index))), 1)[ACHIEVED]
        wide = chosen.reshape(-1, *(1,) * (other.ndim - 1))
        desired = np.where(wide, other, batch.obs[DESIRED])
        reward = self._goals.reward(batch.next_obs[ACHIEVED], desired)
        self._compare(reward, batch.reward, ~chosen)
        terminated = self._goals.terminated(batch.next_obs[ACHIEVED], desired)
        if terminated is None:  # the environment does not define when its task ends: keep the stored discounts
            discount = batch.discount
        else:
            discount = np.where(chosen, np.where(terminated, np.float32(0), self._discount), batch.discount)
        return batch._replace(
            obs=batch.obs | {DESIRED: desired},
            next_obs=batch.next_obs | {DESIRED: np.where(wide, other, batch.next_obs[DESIRED])},
            reward=np.where(chosen, reward, batch.reward),
            discount=discount,
        )

    def _steps(self, index: np.ndarray, uniform: np.ndarray) -> np.ndarray:
        """Return the index of the step that gives each item its goal, (B,). `uniform` (B,) in [0, 1) selects it."""
        number = self._storage.number(index)
        first, last = self._spans(index, number)
        earliest = {"future": number, "final": last, "episode": first}[self._spec.strategy]
        step = earliest + (uniform * (last - earliest + 1)).astype(np.int64)
        return index - index % self._storage.rows + step % self._storage.rows

    def _spans(self, index: np.ndarray, number: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers (B,) of the first and last stored steps of each step's episode."""
        storage = self._storage
        if self._ended != storage.ended:
            ended = np.flatnonzero(storage.columns["terminated"] | storage.columns["truncated"])
            ends = ended // storage.rows * MOST_WRITTEN + storage.number(ended)
            self._ended, self._ends = storage.ended, np.sort(np.append(EDGES, ends))
        env = index // storage.rows
        written, before = storage.written[env], env * MOST_WRITTEN
        end = self._ends.searchsorted(before + number)
        first = np.maximum(self._ends[end - 1] + 1 - before, np.maximum(written - storage.rows, 0))
        return first, np.minimum(self._ends[end] - before, written - 1)

    def _compare(self, computed: np.ndarray, given: np.ndarray, kept: np.ndarray) -> None:
        """Raise EnvironmentFailedError if the `computed` rewards differ from `given`, the rewards from `step`.

        Only items that keep their goals (`kept`) are compared. After a callback has changed the environment, no items
        are compared.
        """
        if self._goals.changed:
            return
        apart = np.abs(computed - given) > TOLERANCE * np.maximum(1, np.abs(given))
        count = np.count_nonzero(apart & kept)
        if count > 1 and count > STRAY * len(kept):
            at = int(np.argmax(apart & kept))
            said, gave = float(computed[at]) + 0.0, float(given[at]) + 0.0  # no -0
            raise EnvironmentFailedError(
                f"{self._goals.name}: compute_reward returns {said:g}, but step returned {gave:g}. They differ in "
                f"{count} of {np.count_nonzero(kept)} steps. Correct compute_reward, or remove what changes rewards "
                "afterwards: a wrapper, a bonus, or a reward that depends on info."
            )
