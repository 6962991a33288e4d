"""Replay of sequences for recurrent networks (Kapturowski et al., 2019, R2D2).

A sequence is some consecutive steps of an episode; `completed_sequences` defines where sequences start and end. Two
examples have burn-in 2, unroll 4 (L = 6 steps, 7 observations) and n = 2. The left sequence is from the middle of an
episode. The right one is a whole episode of four steps, padded:

    step                 4  5  6  7  8  9  .         step                 0  1  2  3  -  -  .
    position             0  1  2  3  4  5  6         position             0  1  2  3  4  5  6
    observation         o4 o5 o6 o7 o8 o9 o10        observation         o0 o1 o2 o3 o4 o4 o4    o4: the final one
    previous action     a3 a4 a5 a6 a7 a8 a9         previous action      . a0 a1 a2 a3 a3 a3
    starts               .  .  .  .  .  .  .         starts               x  .  .  .  .  .  .
    mask                 .  .  1  1  1  1            mask                 1  1  1  1  .  .       learn_from_start
    looks ahead to       2  3  4  5  6  6            looks ahead to       2  3  4  4  4  4
    discount             2  2  2  2  2  1            discount             2  2  e  e  .  .

The row "discount" shows n if the discount is γ^n. The two e are at the end of the episode: if it terminated, their
discounts are 0; otherwise they are γ^2 and γ^1.

Sums of rewards stop at the sequence's end, so its last steps sum fewer than n rewards. The loss includes these steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from typing_extensions import override

from duetto.algorithms.base import OneStep, SequenceBatch, SequenceSpec
from duetto.buffers.base import CARRY, Experience, without_prefix
from duetto.buffers.episode_storage import EpisodeStorage, Segment, expand
from duetto.buffers.replay import Replay
from duetto.errors import UsageError
from duetto.functional.returns import n_step_return
from duetto.networks import masks
from duetto.networks.layers import SequenceInput

Arrays = dict[str, np.ndarray]


class RecurrentStates:
    """Stores the hidden states before the steps at which sequences start. If a state was not stored, it is zeros.

    Attributes:
        zeros: A hidden state of zeros; {} until the first state is stored, which sets the shapes.
    """

    def __init__(self) -> None:
        self.zeros: Arrays = {}
        self._kept: dict[int, Arrays] = {}

    def keep(self, index: np.ndarray, carry: Arrays) -> None:
        """Store copies of the states (K, ...) for the indices (K,)."""
        if carry and not self.zeros:
            self.zeros = {name: np.zeros(array.shape[1:], array.dtype) for name, array in carry.items()}
        if carry:
            for row, i in enumerate(index.tolist()):
                self._kept[i] = {name: np.array(carry[name][row]) for name in self.zeros}

    def drop(self, index: np.ndarray) -> None:
        """Remove the states stored for these indices."""
        if self._kept:
            for i in index.tolist():
                self._kept.pop(i, None)

    def read(self, index: np.ndarray) -> Arrays:
        """Return the states at these indices, arrays (B, ...). Missing states are zeros; {} before any was stored."""
        rows = [self._kept.get(i, self.zeros) for i in index.tolist()]
        return {name: np.stack([row[name] for row in rows]) for name in self.zeros} if rows else {}

    def has(self, index: np.ndarray) -> np.ndarray:
        """Return which of these indices have a state, (K,) bool."""
        return np.isin(index, list(self._kept))


class SequenceReplay(Replay):
    """A replay buffer of the newest sequences of every environment. Overlapping sequences share their stored steps.

    - A sequence is identified by the index and the number of its first step.
    - A sequence needs the action and the reward of the step before it, and is removed when that step is overwritten.
    - Without `learn_from_start`, sequences that end within the burn-in are left out: they have no step to learn from.
    - The first sequence of an episode has `is_first` set: it starts from a hidden state of zeros.
    - New sequences get the largest priority.
    """

    def __init__(self, spec: SequenceSpec, storage: EpisodeStorage, random: np.random.Generator) -> None:
        """Called by `buffers.build`. Only this buffer may draw from `random`."""
        super().__init__(spec, storage, random)
        num_envs, items = len(storage.written), len(storage.written) * storage.rows
        self._length = spec.burn_in + spec.unroll
        if storage.rows < self._length + 1:
            raise UsageError(
                f"replay_capacity gives each environment {storage.rows} steps, but a sequence of {self._length} steps "
                f"needs {self._length + 1}. Raise replay_capacity."
            )
        self._length_at = np.zeros(items, np.int32)  # steps of the sequence that starts at each index; 0: no sequence
        self._is_first = np.zeros(items, bool)  # whether this sequence is the first of its episode
        self._steps = np.zeros(num_envs, np.int64)  # length of each environment's running episode so far
        self._carries = RecurrentStates()

    # ------------------------------------------------------------------------------------------------ filling
    @override
    def store(self, experience: Experience) -> None:
        steps, index = experience, self._storage.add(experience)
        self._steps[steps.env] += 1
        self._drop(steps.env)
        if self.spec.stored_carry:
            starts = (self._steps[steps.env] - 1) % (self._length - self.spec.overlap) == 0
            carry = {name: part[starts] for name, part in steps.extras.items() if name.startswith(CARRY)}
            self._carries.keep(index[starts], carry)
        self._cut(steps.env, steps.terminated | steps.truncated)

    @override
    def interrupt(self, envs: np.ndarray | None = None) -> None:
        env = self._storage.interrupt(envs)
        self._cut(env, np.ones(len(env), bool))

    def _drop(self, env: np.ndarray) -> None:
        """Remove the sequences and hidden states that need an overwritten step."""
        oldest = self._oldest()[env]
        gone = self._storage.index(env[:, None], np.maximum(oldest[:, None] - [1, 2], 0))[oldest > 0].ravel()
        self._carries.drop(gone)
        if self._length_at[gone].any():
            index = np.unique(gone[self._length_at[gone] > 0])
            self._length_at[index] = 0
            self._masses.remove(index)

    def _oldest(self) -> np.ndarray:
        """Return the numbers (num_envs,) of the oldest steps at which a sequence can start."""
        return np.where(self._storage.written > self.rows, self._storage.written - self.rows + 1, 0)

    def _cut(self, env: np.ndarray, done: np.ndarray) -> None:
        """Add the sequences that are completed by the newest steps of the environments `env` (K,)."""
        spec, steps = self.spec, self._steps[env]
        complete, start, real = completed_sequences(steps, done, self._length, spec.overlap)
        self._steps[env[done]] = 0
        which = np.flatnonzero(complete & ((real > spec.burn_in) | spec.learn_from_start))
        if len(which):
            index = self._storage.index(env, self._storage.written[env] - steps + start)[which]
            self._length_at[index], self._is_first[index] = real[which], start[which] == 0
            self._add_items(index)

    # ------------------------------------------------------------------------------------------------ reading
    def _gather(self, index: np.ndarray) -> SequenceBatch:
        """Return the batch of the sequences at `index` (B,), with weights of 1."""
        spec, step = self.spec, np.arange(self._length)
        env, first = index[:, None] // self.rows, self._storage.number(index)[:, None]  # of the sequence's start
        real, is_first = self._length_at[index][:, None], self._is_first[index]
        carry = self._carries.read(index) if spec.stored_carry else {}
        window = self._window(env, first, real, is_first, without_prefix(carry, CARRY))
        steps = self._storage.index(env, first + np.minimum(step, real - 1))
        action = self._storage.columns["action"].take(steps, axis=0)
        if (allowed := masks.mask_of(window.obs)) is not None:  # actions of the padding must be allowed
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
        """Return the network's input for L + 1 observations; shorter sequences repeat their last observation."""
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
        """Return sums of up to n rewards, and discounts: (B, L) float32, 0 after a sequence's last step."""
        step = np.arange(self._length)
        number = first[..., None] + np.minimum(step[:, None] + np.arange(n), real[..., None] - 1)  # (B, L, n)
        index = self._storage.index(env[..., None], number).reshape(-1, n)
        reward, terminated = (self._storage.columns[name].take(index) for name in ("reward", "terminated"))
        left = real - step
        # Only the last step of a sequence can be truncated. Sums end there because of `available`.
        truncated, available = np.zeros_like(terminated), np.maximum(left, 1).reshape(-1)
        summed, discount, _ = n_step_return(reward, terminated, truncated, available, self.spec.discount)
        reward, discount = (np.where(left > 0, x.reshape(left.shape), 0).astype(np.float32) for x in (summed, discount))
        return reward, discount

    # ------------------------------------------------------------------------------------------------ checkpoints
    def _saved_index(self) -> np.ndarray:
        return np.flatnonzero(self._length_at)

    def state_dict(self) -> dict[str, Any]:
        """Return the state, except the steps and the hidden states: `segment` returns these."""
        state, index = super().state_dict(), self._saved_index()
        items = {"index": index, "real": self._length_at[index], "is_first": self._is_first[index]}
        return state | {
            "envs": state["envs"] | {"steps": self._steps.copy()},
            "items": state["items"] | items,
            "carry": {name: zeros.copy() for name, zeros in self._carries.zeros.items()},  # for their shapes
        }

    def _load_items(self, state: dict[str, Any]) -> None:
        self._steps[:] = state["envs"]["steps"]
        index, self._length_at[:] = state["items"]["index"], 0
        self._length_at[index], self._is_first[index] = state["items"]["real"], state["items"]["is_first"]
        self._carries = RecurrentStates()
        self._carries.zeros = dict(state["carry"])

    @override
    def segment(self, since: np.ndarray) -> Segment:
        """Return each environment i's stored steps from number `since[i]` on, and their hidden states.

        "kept" (steps,) bool tells which steps have a hidden state. "carry/<name>" has the states of these steps.
        """
        segment = self._storage.segment(since)
        index = self._storage.index(*expand(segment["start"], segment["count"]))
        kept = self._carries.has(index)
        carry = self._carries.read(index[kept])
        return segment | {"kept": kept} | carry

    @override
    def load_segment(self, segment: Segment) -> None:
        super().load_segment(segment)
        rows = np.flatnonzero(segment["kept"])
        zeros = self._carries.zeros if len(rows) else {}
        env, number = (part[rows] for part in expand(segment["start"], segment["count"]))
        there = (number >= self._oldest()[env]) & (number < self._storage.written[env])
        carry = {name: segment[name][there] for name in zeros}
        self._carries.keep(self._storage.index(env, number)[there], carry)


def completed_sequences(
    steps: np.ndarray, done: np.ndarray, length: int, overlap: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find which of N episodes complete a sequence with their newest step. A step completes at most one sequence.

    Sequences start at the steps 0, p, 2p, ... of their episode, with p = L - overlap. They have L steps. The last
    one may have fewer, as it ends with its episode. It is left out if the sequence before it contains all its steps.

        L 8, overlap 4                  L 4, overlap 3                  L 6, overlap 0
        T = 3     aaa                   T = 2     aa                    T = 5     aaaaa
        T = 8     aaaaaaaa              T = 4     aaaa                  T = 6     aaaaaa
        T = 9     aaaaaaaa              T = 6     aaaa                  T = 7     aaaaaa
                      bbbbb                        bbbb                                 b
        T = 13    aaaaaaaa                          cccc                T = 13    aaaaaa
                      bbbbbbbb                                                          bbbbbb
                          ccccc                                                               c

    A sequence is complete with its L-th step, or when the episode ends:

        L 4, overlap 2      step          1  2  3  4  5  6  7 (the last)
                            complete      .  .  .  a  .  b  c

    Args:
        steps: (N,) int, the number of steps of each episode so far.
        done: (N,) bool, whether the newest step ends its episode.
        length: L.
        overlap: The number of steps that a sequence shares with the next, from 0 to L-1.

    Returns:
        Whether the newest step completes a sequence, (N,) bool; the start of the earliest sequence that was incomplete
        before this step, (N,) int; and the number of this sequence's steps so far, (N,) int.
    """
    period = length - overlap
    made = np.maximum((steps - 1 - overlap) // period, 0)  # sequences that were complete before the newest step
    start = made * period
    real = steps - start
    return (real == length) | done, start, real
