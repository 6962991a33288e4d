"""Replay of sequences, spans of an episode, for recurrent networks (Kapturowski et al., 2019, R2D2).

`cut` says which spans of an episode are sequences.

Burn-in 2, unroll 4 (L = 6 steps, 7 observations), n = 2. A span from the middle of an episode; and one that starts
its episode and also ends it, after four steps:

    step                 4  5  6  7  8  9  .         step                 0  1  2  3  -  -  .
    position             0  1  2  3  4  5  6         position             0  1  2  3  4  5  6
    observation         o4 o5 o6 o7 o8 o9 o10        observation         o0 o1 o2 o3 o4 o4 o4    o4: the final one
    previous action     a3 a4 a5 a6 a7 a8 a9         previous action      . a0 a1 a2 a3 a3 a3
    starts               .  .  .  .  .  .  .         starts               x  .  .  .  .  .  .
    mask                 .  .  1  1  1  1            mask                 1  1  1  1  .  .       learn_from_start
    looks ahead to       2  3  4  5  6  6            looks ahead to       2  3  4  4  4  4
    discount             2  2  2  2  2  1            discount             2  2  e  e  .  .       n of γ^n; e: 2 and 1,
                                                                                                 0 if terminated

Rewards are summed up to the end of the span at most: a step near its end looks less far ahead, but none is lost.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from typing_extensions import override

from duetto.algorithms.base import OneStep, SequenceBatch, SequenceSpec
from duetto.buffers.base import Experience
from duetto.buffers.replay import Replay
from duetto.buffers.storage import EpisodeStorage, Segment, expand
from duetto.errors import CheckpointError, UsageError
from duetto.functional import state_schema
from duetto.functional.returns import n_step_return
from duetto.functional.state_schema import ARRAY, ArrayOf, DictOf
from duetto.networks import masks
from duetto.networks.layers import SequenceInput

PREFIX = "carry/"  # of the names of hidden states in `Experience.extras` and in segments
Arrays = dict[str, np.ndarray]


class RecurrentStates:
    """Hidden states of some indices. For steps without one, such as random actions, it is zeros.

    Attributes:
        zeros: The zero state, like the first state that was kept; {} before.
    """

    def __init__(self) -> None:
        self.zeros: Arrays = {}
        self._kept: dict[int, Arrays] = {}

    def keep(self, index: np.ndarray, carry: Arrays) -> None:
        """Keep copies of the states (K, ...) for the indices (K,)."""
        if carry and not self.zeros:
            self.zeros = {name: np.zeros(array.shape[1:], array.dtype) for name, array in carry.items()}
        if carry:
            for row, i in enumerate(index.tolist()):
                self._kept[i] = {name: np.array(carry[name][row]) for name in self.zeros}

    def drop(self, index: np.ndarray) -> None:
        """Remove the states of indices."""
        if self._kept:
            for i in index.tolist():
                self._kept.pop(i, None)

    def read(self, index: np.ndarray) -> Arrays:
        """Return the states (B, ...) at these indices; empty if no state is stored."""
        rows = [self._kept.get(i, self.zeros) for i in index.tolist()]
        return {name: np.stack([row[name] for row in rows]) for name in self.zeros} if rows else {}

    def has(self, index: np.ndarray) -> np.ndarray:
        """Return which of these indices have a state, (K,) bool."""
        return np.isin(index, list(self._kept))


class SequenceReplay(Replay):
    """The sequences of the newest episodes of every environment. Each step is stored once, though sequences overlap.

    - A sequence disappears with the step before its first one, whose action and reward it needs.
    - A sequence without any step to learn from (`learn_from_start` off, and not longer than the burn-in) is not kept.
    - It is named by the index and the number of its first step.
    - An episode's first sequence is marked `is_first`: its network state is exactly the zero state.
    - New sequences get the largest priority.
    """

    def __init__(self, spec: SequenceSpec, storage: EpisodeStorage, random: np.random.Generator) -> None:
        """Use `buffers.build`. `random` belongs to the memory."""
        super().__init__(spec, storage, random)
        num_envs, items = len(storage.written), len(storage.written) * storage.rows
        self._length = spec.burn_in + spec.unroll
        if storage.rows < self._length + 1:
            raise UsageError(
                f"replay_capacity gives each environment {storage.rows} steps, but a sequence of {self._length} steps "
                f"needs {self._length + 1}. Raise replay_capacity."
            )
        self._length_at = np.zeros(items, np.int32)  # steps of the sequence that starts at each index; 0 for none
        self._is_first = np.zeros(items, bool)  # whether it starts its episode
        self._steps = np.zeros(num_envs, np.int64)  # of each running episode
        self._carries = RecurrentStates()

    # ------------------------------------------------------------------------------------------------ filling
    def _added(self, steps: Experience, index: np.ndarray) -> None:
        self._steps[steps.env] += 1
        self._drop(steps.env)
        if self._spec.stored_carry:
            starts = (self._steps[steps.env] - 1) % (self._length - self._spec.overlap) == 0
            carry = {name: part[starts] for name, part in steps.extras.items() if name.startswith(PREFIX)}
            self._carries.keep(index[starts], carry)
        self._cut(steps.env, steps.terminated | steps.truncated)

    def _interrupted(self, env: np.ndarray) -> None:
        self._cut(env, np.ones(len(env), bool))

    def _drop(self, env: np.ndarray) -> None:
        """Remove sequences and states whose steps, or the steps before them, were overwritten."""
        oldest = self._oldest()[env]
        gone = self._storage.index(env[:, None], np.maximum(oldest[:, None] - [1, 2], 0))[oldest > 0].ravel()
        self._carries.drop(gone)
        if self._length_at[gone].any():
            index = np.unique(gone[self._length_at[gone] > 0])
            self._length_at[index] = 0
            self._masses.remove(index)

    def _oldest(self) -> np.ndarray:
        """Return the number (num_envs,) of the first step that a sequence can start at."""
        return np.where(self._storage.written > self.rows, self._storage.written - self.rows + 1, 0)

    def _cut(self, env: np.ndarray, done: np.ndarray) -> None:
        """Make sequences that are complete with the newest steps of the environments (K,)."""
        spec, steps = self._spec, self._steps[env]
        complete, start, real = cut(steps, done, self._length, spec.overlap)
        self._steps[env[done]] = 0
        which = np.flatnonzero(complete & ((real > spec.burn_in) | spec.learn_from_start))
        if len(which):
            index = self._storage.index(env, self._storage.written[env] - steps + start)[which]
            self._length_at[index], self._is_first[index] = real[which], start[which] == 0
            self._add_items(index)

    # ------------------------------------------------------------------------------------------------ reading
    def _gather(self, index: np.ndarray) -> SequenceBatch:
        """Return the batch of the sequences at `index` (B,), with weights of 1."""
        spec, step = self._spec, np.arange(self._length)
        env, first = index[:, None] // self.rows, self._storage.number(index)[:, None]  # of its first step
        real, is_first = self._length_at[index][:, None], self._is_first[index]
        carry = self._carries.read(index) if spec.stored_carry else {}
        carry = {name.removeprefix(PREFIX): part for name, part in carry.items()}
        window = self._window(env, first, real, is_first, carry)
        steps = self._storage.index(env, first + np.minimum(step, real - 1))
        action = self._storage.columns["action"].take(steps, axis=0)
        if (allowed := masks.mask_of(window.obs)) is not None:  # padding must not take a forbidden action
            action = np.where(step < real, action, allowed[:, : self._length].argmax(axis=-1))
        reward, discount = self._returns(env, first, real, spec.n_step)
        learned = (step >= spec.burn_in) | (is_first[:, None] & spec.learn_from_start)
        one_step = None
        if spec.one_step and spec.n_step > 1:
            one_step = OneStep(*self._returns(env, first, real, 1), np.minimum(step + 1, real))
        return SequenceBatch(
            obs=window,
            action=action,
            reward=reward,
            discount=discount,
            ahead=np.minimum(step + spec.n_step, real),
            weight=np.ones(len(index), np.float32),
            mask=((step < real) & learned).astype(np.float32),
            one_step=one_step,
        )

    def _window(
        self, env: np.ndarray, first: np.ndarray, real: np.ndarray, is_first: np.ndarray, carry: Arrays
    ) -> SequenceInput:
        """Return the L + 1 observations of each sequence; where it is shorter, the last one is repeated."""
        storage, step = self._storage, np.arange(self._length + 1)
        number = first + np.minimum(step, real)
        previous = storage.index(env, number - 1)
        action, reward = (storage.columns[name].take(previous, axis=0) for name in ("action", "reward"))
        action[is_first, 0] = -1 if action.dtype.kind == "i" else 0
        reward[is_first, 0] = 0
        starts = np.zeros(number.shape, bool)
        starts[:, 0] = is_first
        at = np.tile(step[:-1], (len(env), 1))
        following = step >= real
        obs = storage.observation(storage.index(env, number - following), following)
        return SequenceInput(obs, action, reward, starts, carry, is_first, at)

    def _returns(self, env: np.ndarray, first: np.ndarray, real: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Return sums of up to n rewards, and discounts, both (B, L) float32 and 0 behind a sequence's last step."""
        step = np.arange(self._length)
        number = first[..., None] + np.minimum(step[:, None] + np.arange(n), real[..., None] - 1)  # (B, L, n)
        index = self._storage.index(env[..., None], number).reshape(-1, n)
        reward, terminated = (self._storage.columns[name].take(index) for name in ("reward", "terminated"))
        left = real - step
        # Only a sequence's last step can be one where the episode is cut: `available` has checked it.
        truncated, available = np.zeros_like(terminated), np.maximum(left, 1).reshape(-1)
        summed, discount, _ = n_step_return(reward, terminated, truncated, available, self._spec.discount)
        reward, discount = (np.where(left > 0, x.reshape(left.shape), 0).astype(np.float32) for x in (summed, discount))
        return reward, discount

    # ------------------------------------------------------------------------------------------------ checkpoints
    def _saved_index(self) -> np.ndarray:
        return np.flatnonzero(self._length_at)

    def state_dict(self) -> dict[str, Any]:
        """Return everything but steps and recurrent states, which `segment` hands out; see `Replay.state_dict`."""
        state, index = super().state_dict(), self._saved_index()
        items = {"index": index, "real": self._length_at[index], "is_first": self._is_first[index]}
        return state | {
            "envs": state["envs"] | {"steps": self._steps.copy()},
            "items": state["items"] | items,
            "carry": {name: zeros.copy() for name, zeros in self._carries.zeros.items()},  # their shapes
        }

    def _load_items(self, state: dict[str, Any]) -> None:
        state_schema.check(state["items"], {"index": ArrayOf(None, (), np.int64)}, "memory/items")
        some = ArrayOf(len(state["items"]["index"]), (), np.int64)
        items = {"index": some, "real": some, "is_first": ArrayOf(some.rows, (), np.bool_)}
        form = {"envs": {"steps": self._steps}, "items": items, "carry": DictOf(ARRAY)}
        state_schema.check(state, form, "memory")
        self._steps[:] = state["envs"]["steps"]
        index, real = state["items"]["index"], state["items"]["real"]
        inside = (index >= 0) & (index < len(self._length_at)) & (real > 0) & (real <= self._length)
        if not np.all(inside):
            raise CheckpointError("The checkpoint's sequence memory has sequences where it has no steps.")
        self._length_at[:] = 0
        self._length_at[index], self._is_first[index] = real, state["items"]["is_first"]
        self._carries = RecurrentStates()
        self._carries.zeros = dict(state["carry"])

    @override
    def segment(self, since: np.ndarray) -> Segment:
        """ "kept" says which steps have a recurrent state; "carry/<name>" has those of these steps."""
        segment = self._storage.segment(since)
        index = self._storage.index(*expand(segment["start"], segment["count"]))
        kept = self._carries.has(index)
        carry = self._carries.read(index[kept])
        return segment | {"kept": kept} | carry

    @override
    def load_segment(self, segment: Segment) -> None:
        super().load_segment(segment)
        what, count = "a segment of the memory", int(segment["count"].sum())
        state_schema.check(segment, {"kept": ArrayOf(count, (), np.bool_)}, what)
        rows = np.flatnonzero(segment["kept"])
        zeros = self._carries.zeros if len(rows) else {}
        form = {name: ArrayOf(len(rows), part.shape, part.dtype) for name, part in zeros.items()}
        state_schema.check(segment, form, what)
        env, number = (part[rows] for part in expand(segment["start"], segment["count"]))
        there = (number >= self._oldest()[env]) & (number < self._storage.written[env])
        carry = {name: segment[name][there] for name in zeros}
        self._carries.keep(self._storage.index(env, number)[there], carry)


def cut(steps: np.ndarray, done: np.ndarray, length: int, overlap: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find which of N episodes complete a sequence with their newest step; none can complete two at once.

    They start at the steps 0, p, 2p, ... with p = L - overlap, and have L steps; only the last one may have fewer.
    Beyond the first, one is made only if it adds a step that the one before does not have. None runs across an
    episode's end.

        L 8, overlap 4                  L 4, overlap 3                  L 6, overlap 0
        T = 3     aaa                   T = 2     aa                    T = 5     aaaaa
        T = 8     aaaaaaaa              T = 4     aaaa                  T = 6     aaaaaa
        T = 9     aaaaaaaa              T = 6     aaaa                  T = 7     aaaaaa
                      bbbbb                        bbbb                                 b
        T = 13    aaaaaaaa                          cccc                T = 13    aaaaaa
                      bbbbbbbb                                                          bbbbbb
                          ccccc                                                               c

    A sequence of L steps is complete with its last step, a shorter one when the episode ends:

        L 4, overlap 2      step          1  2  3  4  5  6  7 (the last)
                            complete      .  .  .  a  .  b  c

    Args:
        steps: (N,) int, steps of each episode up to and including the newest.
        done: (N,) bool, the newest step is its last.
        length: L.
        overlap: steps that a sequence shares with the next, in 0 .. L-1.

    Returns:
        (N,) bool; and (N,) int, where the next sequence starts and how many steps of it there are (less than 1 if it
        starts later).
    """
    period = length - overlap
    made = np.maximum((steps - 1 - overlap) // period, 0)  # complete before the newest step
    start = made * period
    real = steps - start
    last = done & ((made == 0) | (real > overlap))
    return (real == length) | last, start, real
