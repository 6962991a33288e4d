"""Hindsight experience replay: replace the goals in a batch (see `algorithms/her.py`).

numbers of one environment       3 4 5 6 7 | 8 9 ...       an episode ends with 7; 3 is the oldest that is stored
a batch's item 5 gets, of "future", the goal that 5, 6 or 7 led to; of "final" that of 7; of "episode" of 3 .. 7
item 9 is of an episode that still runs: as far as it has come
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from duetto.algorithms.base import Batch, HindsightSpec
from duetto.algorithms.her import ACHIEVED, DESIRED
from duetto.buffers.storage import MOST_WRITTEN, EpisodeStorage
from duetto.errors import EnvironmentFailedError

EDGES = (-1, 2**63 - 1)  # before and after all ends of episodes
TOLERANCE, STRAY = 1e-4, 0.02  # of a reward; the share of items near a goal's edge that may differ by rounding


class HindsightGoals(Protocol):
    """The functions of a goal environment that HER needs; see `environments.GoalEnv`."""

    name: str
    changed: bool

    def reward(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        """Return the rewards (B,) float32 for goals (B, ...)."""
        ...

    def terminated(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray | None:
        """Return whether the task is over (B,) bool, or None if the environment has no such function."""
        ...


class Relabeling:
    """Put other goals into a batch, with their rewards and discounts.

    Attributes:
        stale: Whether an episode has ended since the ends were read from the storage.
    """

    def __init__(self, spec: HindsightSpec, storage: EpisodeStorage, goals: HindsightGoals, discount: float) -> None:
        """`discount` is γ."""
        self._spec, self._storage, self._goals = spec, storage, goals
        self._discount = np.float32(discount)
        self._ends = np.array(EDGES)  # ascending: env * MOST_WRITTEN + number, of stored steps that end their episode
        self.stale: bool = True

    def __call__(self, batch: Batch, index: np.ndarray, random: np.random.Generator) -> Batch:
        """Return the batch of the items at `index` (B,) with other goals in a share of them. Draws 2 B numbers.

        Raises:
            EnvironmentFailedError: `compute_reward` disagrees with the rewards of steps.
        """
        chosen = random.random(len(index)) < self._spec.share
        other = self._storage.next_part(ACHIEVED, self._steps(index, random.random(len(index))))
        wide = chosen.reshape(-1, *(1,) * (other.ndim - 1))
        desired = np.where(wide, other, batch.obs[DESIRED])
        reward = self._goals.reward(batch.next_obs[ACHIEVED], desired)
        self._compare(reward, batch.reward, ~chosen)
        return batch._replace(
            obs=batch.obs | {DESIRED: desired},
            next_obs=batch.next_obs | {DESIRED: np.where(wide, other, batch.next_obs[DESIRED])},
            reward=np.where(chosen, reward, batch.reward),
            discount=np.where(chosen, self._discounts(batch, desired), batch.discount),
        )

    def _steps(self, index: np.ndarray, uniform: np.ndarray) -> np.ndarray:
        """Return the index (B,) of the step whose achieved goal replaces the goal; `uniform` (B,) selects it."""
        number = self._storage.number(index)
        first, last = self._spans(index, number)
        earliest = {"future": number, "final": last, "episode": first}[self._spec.strategy]
        step = earliest + (uniform * (last - earliest + 1)).astype(np.int64)
        return index - index % self._storage.rows + step % self._storage.rows

    def _spans(self, index: np.ndarray, number: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the first and last number (B,) of the episode of each step, as far as they are stored."""
        storage = self._storage
        if self.stale:
            ended = np.flatnonzero(storage.columns["terminated"] | storage.columns["truncated"])
            ends = ended // storage.rows * MOST_WRITTEN + storage.number(ended)
            self.stale, self._ends = False, np.sort(np.append(EDGES, ends))
        env = index // storage.rows
        written, before = storage.written[env], env * MOST_WRITTEN
        end = self._ends.searchsorted(before + number)
        first = np.maximum(self._ends[end - 1] + 1 - before, np.maximum(written - storage.rows, 0))
        return first, np.minimum(self._ends[end] - before, written - 1)

    def _discounts(self, batch: Batch, desired: np.ndarray) -> np.ndarray:
        """Return γ, or 0 if the task is over for these goals. As stored if the environment has no such function."""
        terminated = self._goals.terminated(batch.next_obs[ACHIEVED], desired)
        if terminated is None:
            return batch.discount
        return np.where(terminated, np.float32(0), self._discount)

    def _compare(self, computed: np.ndarray, given: np.ndarray, kept: np.ndarray) -> None:
        """Raise EnvironmentFailedError if `computed` rewards differ from those `given` by steps.

        Only items that are `kept` with their own goals are compared, and only until a callback changes the environment.
        """
        if self._goals.changed:
            return
        apart = np.abs(computed - given) > TOLERANCE * np.maximum(1, np.abs(given))
        count = np.count_nonzero(apart & kept)
        if count > 1 and count > STRAY * len(kept):
            at = int(np.argmax(apart & kept))
            said, gave = float(computed[at]) + 0.0, float(given[at]) + 0.0  # no -0
            raise EnvironmentFailedError(
                f"{self._goals.name}: compute_reward gives {said:g} where the step gave {gave:g}, and so in {count} of "
                f"{np.count_nonzero(kept)} steps. Correct compute_reward, or remove what changes rewards afterwards (a "
                "wrapper, a bonus, what needs info)."
            )
