"""Goals of hindsight (see `algorithms/hindsight.py`), put into batches that a replay memory has drawn.

numbers of one environment       3 4 5 6 7 | 8 9 ...       an episode ends with 7; 3 is the oldest that is stored
a batch's item 5 gets, of "future", the goal that 5, 6 or 7 led to; of "final" that of 7; of "episode" of 3 .. 7
item 9 is of an episode that still runs: as far as it has come
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from duetto.algorithms.base import Batch, HindsightSpec
from duetto.algorithms.hindsight import ACHIEVED, DESIRED
from duetto.errors import EnvironmentFailedError
from duetto.memory.rings import Rings

RUNS = 2**62  # the last number of an episode that has not ended
TOLERANCE, STRAY = 1e-4, 0.02  # of a reward; the share of items near a goal's edge that rounding may put beside it


class Goals(Protocol):
    """The functions of an environment with goals that hindsight needs; see `environments.Goals`."""

    name: str
    changed: bool

    def reward(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        """Return the rewards (B,) float32 for goals (B, ...)."""
        ...

    def terminated(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray | None:
        """Return whether the task is over (B,) bool, or None where the environment does not say."""
        ...


class Spans:
    """Numbers of the first and last transition of every stored transition's episode; read anew from the rings if
    `stale`.
    """

    def __init__(self, rings: Rings) -> None:
        self._rings = rings
        count = len(rings.written) * rings.rows
        self._first, self._last = np.zeros(count, np.int64), np.full(count, RUNS)
        self._begins = np.zeros_like(rings.written)  # the number that each environment's newest episode begins with
        self.stale: bool = False

    def of(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the first and last number (B,) of the episode of each index, as far as they are stored."""
        if self.stale:
            self._make_anew()
        written = self._rings.written[index // self._rings.rows]
        first = np.maximum(self._first[index], written - self._rings.rows)
        return first, np.minimum(self._last[index], written - 1)

    def note(self, index: np.ndarray, ended: np.ndarray) -> None:
        """Note transitions written at `index` (K,), those of one environment in time order.

        `ended` (K,) bool says which are the last of their episodes.
        """
        if self.stale:
            return
        rows = self._rings.rows
        left = np.bincount(index // rows, minlength=len(self._begins))  # still to come of each environment
        for at, over in zip(index.tolist(), ended.tolist(), strict=True):
            env = at // rows
            left[env] -= 1
            number = int(self._rings.written[env]) - 1 - int(left[env])
            self._first[at], self._last[at] = self._begins[env], RUNS
            if over:
                self._close(env, number)

    def _close(self, env: int, number: int) -> None:
        """Note that the running episode ends with this number."""
        rows = self._rings.rows
        numbers = np.arange(max(int(self._begins[env]), number - rows + 1), number + 1)
        self._last[env * rows + numbers % rows] = number
        self._begins[env] = number + 1

    def _make_anew(self) -> None:
        """Read from the rings where episodes end, and so where the next ones begin."""
        rows, self.stale = self._rings.rows, False
        for env, written in enumerate(self._rings.written.tolist()):
            numbers = np.arange(max(written - rows, 0), written)
            at = env * rows + numbers % rows
            ended = self._rings.arrays["terminated"][at] | self._rings.arrays["truncated"][at]
            ends = numbers[ended]
            beginnings = np.append(numbers[:1], ends + 1)
            self._last[at] = np.append(ends, RUNS)[np.searchsorted(ends, numbers)]
            self._first[at] = beginnings[np.searchsorted(ends, numbers)]
            self._begins[env] = beginnings[-1] if len(beginnings) else 0


class Relabelling:
    """The step that puts other goals into batches, and replaces rewards and discounts to match."""

    def __init__(self, spec: HindsightSpec, rings: Rings, goals: Goals, discount: float, no_end: bool) -> None:
        """`discount` is γ; with `no_end` it stays, whatever terminates."""
        self._spec, self._rings, self._goals = spec, rings, goals
        self._discount, self._no_end = np.float32(discount), no_end
        self.spans: Spans = Spans(rings)

    def __call__(self, batch: Batch, index: np.ndarray, random: np.random.Generator) -> Batch:
        """Return the batch, whose items are at `index` (B,), with other goals in some. Draws 2 B numbers from `random`.

        Raises:
            EnvironmentFailedError: `compute_reward` does not give the rewards that steps have given.
        """
        chosen = random.random(len(index)) < self._spec.share
        reached = self._rings.arrays[f"next_obs/{ACHIEVED}"]
        other = reached.take(self._steps(index, random.random(len(index))), axis=0)
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
        """The index (B,) of the step whose outcome becomes the goal; `uniform` (B,) in [0, 1) chooses."""
        number, (first, last) = self._rings.number(index), self.spans.of(index)
        earliest = {"future": number, "final": last, "episode": first}[self._spec.strategy]
        step = earliest + (uniform * (last - earliest + 1)).astype(np.int64)
        return index - index % self._rings.rows + step % self._rings.rows

    def _discounts(self, batch: Batch, desired: np.ndarray) -> np.ndarray:
        """γ, or 0 where the task is over for these goals; as stored where the environment does not say it of goals."""
        terminated = None if self._no_end else self._goals.terminated(batch.next_obs[ACHIEVED], desired)
        if terminated is None:
            return batch.discount
        return np.where(terminated, np.float32(0), self._discount)

    def _compare(self, computed: np.ndarray, given: np.ndarray, kept: np.ndarray) -> None:
        """Raise EnvironmentFailedError where `computed` rewards differ from those `given` by steps, in items that are
        `kept` with their own goals; not once a callback has changed the environments, for both may then differ.
        """
        if self._goals.changed:
            return
        apart = np.abs(computed - given) > TOLERANCE * np.maximum(1, np.abs(given))
        count = np.count_nonzero(apart & kept)
        if count > 1 and count > STRAY * len(kept):
            at = int(np.argmax(apart & kept))
            said, gave = float(computed[at]) + 0.0, float(given[at]) + 0.0  # no -0
            raise EnvironmentFailedError(
                f"{self._goals.name}: compute_reward gives {said:g} where the step gave {gave:g}, and so "
                f"in {count} of {np.count_nonzero(kept)} steps: hindsight would learn from other rewards. Correct "
                "compute_reward, or take out what changes rewards afterwards (a wrapper, a bonus, what needs info)."
            )
