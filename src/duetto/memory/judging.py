"""First priorities of new items, from the action values that their steps were acted with (Horgan et al., 2018, Ape-X).

An actor computes Q(s, a) of what it does, and max_a Q(s, a), in order to act. An item's |δ| needs no more than that of
its first step and of the one that its rewards are followed by. With n = 2, an episode that terminates with step 3:

    step                    0     1     2     3
    the actor knew         q0    q1    q2    q3        Q(s, a) of what it did
                           v0    v1    v2    v3        max_a Q(s, a)
    items judged then       .     .     0   1 2 3      0 by q0 and v2, 1 by q1 and v3; 2 and 3 by rewards alone
    if truncated            .     .     0   1          2 and 3 look ahead to what the episode ended with

Until then an item has the priority that all begin with, the largest so far, and can be drawn with it: nothing else of a
memory is another. Nobody acts on an episode's last observation, so nobody knows its value, and asking for it would be
another pass of a network: items that need it keep the largest. So do those of random actions, which no network was
asked for; those whose episode broke off; and what was learned from before keeps what the learner said, who knows
better. Sequences, here of 3 steps, wait for the value of the observation behind them:

    step                    0  1  2  3  4  5  6  7
    complete, then judged         a  .                 a with the next step; one that its episode terminates with, at
                                           b  .        once; one that is cut short or truncated, never
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from duetto.algorithms.base import Q_BEST, Q_TAKEN, Prospect
from duetto.errors import CheckpointError
from duetto.functional import forms


class Judgements:
    """Action values that actors knew of every environment's newest steps, by row number; NaN where none is known."""

    def __init__(self, num_envs: int, depth: int) -> None:
        """`depth` is the number of steps kept of each environment."""
        self._depth = depth
        self._known = {name: np.full((num_envs, depth), np.nan, np.float32) for name in (Q_TAKEN, Q_BEST)}

    def note(self, env: np.ndarray, number: np.ndarray, extras: Mapping[str, np.ndarray]) -> None:
        """Keep what is known of one step of each of K environments, (K,) each."""
        for name, known in self._known.items():
            known[env, number % self._depth] = extras.get(name, np.nan)

    def taken(self, env: np.ndarray, number: np.ndarray) -> np.ndarray:
        """Return Q(s, a) of the steps `number` (B, ...) of environments (B,), NaN where it is not known."""
        return self._read(Q_TAKEN, env, number)

    def ahead(
        self, reward: np.ndarray, discount: np.ndarray, env: np.ndarray, number: np.ndarray, over: np.ndarray
    ) -> Prospect:
        """Return rewards and discounts with max_a Q(s, a) of the steps `number` (B, ...) behind them, in that shape.

        The value is NaN where nobody knows it, as where the episode is `over` before, and 0 where the discount is.
        """
        value = np.where(over, np.float32(np.nan), self._read(Q_BEST, env, number))
        return Prospect(reward, discount, np.where(discount > 0, value, np.float32(0)))

    def _read(self, name: str, env: np.ndarray, number: np.ndarray) -> np.ndarray:
        return self._known[name][env.reshape(-1, *[1] * (number.ndim - 1)), number % self._depth]

    def state_dict(self) -> dict[str, Any]:
        """Return copies of all values."""
        return {name: known.copy() for name, known in self._known.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned. CheckpointError for another memory's."""
        forms.check(state, self._known, "memory/judged")
        for name, known in self._known.items():
            known[:] = state[name]


class StepJudgements(Judgements):
    """Judgements of single steps with windows of n: which windows are whole, and not judged yet."""

    def __init__(self, num_envs: int, n_step: int) -> None:
        super().__init__(num_envs, n_step + 1)
        self._n_step = n_step
        self._waiting = np.zeros(num_envs, np.int64)  # newest steps, whose windows are not whole

    def whole(self, env: np.ndarray, number: np.ndarray, done: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return environments and numbers (B,) of the steps whose windows are whole once K environments made `number`.

        In each environment that is the step n before, and where the episode is `done` all that wait.
        """
        count = self._waiting[env] + 1
        some = np.where(done, count, count > self._n_step)
        self._waiting[env] = count - some
        nth = np.arange(some.sum()) - (some.cumsum() - some).repeat(some)  # [2, 0, 3] -> [0, 1, 0, 1, 2]
        return env.repeat(some), (number - count + 1).repeat(some) + nth

    def settle(self, env: np.ndarray, number: np.ndarray, written: np.ndarray) -> None:
        """Forget Q(s, a) of the steps `number` (B,), which the learner has judged; `written` (B,) as in `Rings`."""
        waits = number >= written - self._depth
        self._known[Q_TAKEN][env[waits], number[waits] % self._depth] = np.nan

    def state_dict(self) -> dict[str, Any]:
        """See Judgements."""
        return super().state_dict() | {"waiting": self._waiting.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See Judgements."""
        forms.check(state, {"waiting": self._waiting}, "memory/judged")
        if np.any((state["waiting"] < 0) | (state["waiting"] > self._n_step)):
            raise CheckpointError("The checkpoint's memory has more steps that wait for their priority than there are.")
        super().load_state_dict(state)
        self._waiting[:] = state["waiting"]


class SequenceJudgements(Judgements):
    """Judgements of sequences of at most L steps: which one of each environment waits for the value behind it.

    Attributes:
        waiting: (num_envs,) int64, the number of its first row; -1 for none.
    """

    def __init__(self, num_envs: int, length: int) -> None:
        super().__init__(num_envs, length + 1)
        self.waiting: np.ndarray = np.full(num_envs, -1)

    def whole(self, env: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return environments and first rows (B,) of sequences that can be judged once K environments made a step."""
        env = env[self.waiting[env] >= 0]
        first = self.waiting[env]
        self.waiting[env] = -1
        return env, first

    def settle(self, env: np.ndarray, first: np.ndarray) -> None:
        """Stop waiting for the sequences (B,), which the learner has judged."""
        self.waiting[env[self.waiting[env] == first]] = -1

    def state_dict(self) -> dict[str, Any]:
        """See Judgements."""
        return super().state_dict() | {"waiting": self.waiting.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See Judgements."""
        forms.check(state, {"waiting": self.waiting}, "memory/judged")
        super().load_state_dict(state)
        self.waiting[:] = state["waiting"]
