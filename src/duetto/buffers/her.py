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
from duetto.buffers.storage import EpisodeStorage
from duetto.errors import EnvironmentFailedError

RUNS = 2**62  # the last number of a running episode
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


class EpisodeSpans:
    """The numbers of the first and last step of each stored step's episode.

    If `stale`, they are read from the storage again.
    """

    def __init__(self, storage: EpisodeStorage) -> None:
        self._storage = storage
        count = len(storage.written) * storage.rows
        self._first, self._last = np.zeros(count, np.int64), np.full(count, RUNS)
        self._begins = np.zeros_like(storage.written)  # the number that each environment's newest episode starts with
        self.stale: bool = False

    def of(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the first and last number (B,) of the episode of each index, as far as they are stored."""
        if self.stale:
            self._make_anew()
        env = index // self._storage.rows
        written, last = self._storage.written[env], self._last[index]
        first = np.where(last == RUNS, self._begins[env], self._first[index])
        return np.maximum(first, written - self._storage.rows), np.minimum(last, written - 1)

    def note(self, index: np.ndarray, ended: np.ndarray) -> None:
        """Add steps at `index` (K,) of different environments; `ended` (K,) bool marks the last of an episode."""
        self._last[index] = RUNS
        self.close(index[ended] // self._storage.rows)

    def close(self, envs: np.ndarray) -> None:
        """End the episodes of the environments (K,) with their newest steps."""
        for env in envs.tolist():
            self._close(env, int(self._storage.written[env]) - 1)

    def _close(self, env: int, number: int) -> None:
        """End an environment's episode with this number."""
        rows, first = self._storage.rows, int(self._begins[env])
        index = env * rows + np.arange(max(first, number - rows + 1), number + 1) % rows
        self._first[index], self._last[index] = first, number
        self._begins[env] = number + 1

    def _make_anew(self) -> None:
        """Read the ends of episodes from the storage."""
        storage, self.stale = self._storage, False
        self._last[:] = RUNS
        self._begins[:] = storage.written - storage.stored
        ended = np.flatnonzero(storage.columns["terminated"] | storage.columns["truncated"])
        number = storage.number(ended)
        for at in number.argsort().tolist():
            if 0 <= number[at] < storage.written[env := int(ended[at]) // storage.rows]:
                self._close(env, int(number[at]))


class Relabeling:
    """Put other goals into a batch, with their rewards and discounts."""

    def __init__(self, spec: HindsightSpec, storage: EpisodeStorage, goals: HindsightGoals, discount: float) -> None:
        """`discount` is γ."""
        self._spec, self._storage, self._goals = spec, storage, goals
        self._discount = np.float32(discount)
        self.spans: EpisodeSpans = EpisodeSpans(storage)

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
        number, (first, last) = self._storage.number(index), self.spans.of(index)
        earliest = {"future": number, "final": last, "episode": first}[self._spec.strategy]
        step = earliest + (uniform * (last - earliest + 1)).astype(np.int64)
        return index - index % self._storage.rows + step % self._storage.rows

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
