"""Replay of sequences, spans of an episode, for recurrent networks (Kapturowski et al., 2019, R2D2).

`sequence_bounds` says which spans of an episode are sequences.

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

from typing import Any, NamedTuple

import numpy as np
from typing_extensions import override

from duetto.algorithms.base import OneStep, SequenceBatch, SequenceSpec
from duetto.buffers.base import Experience
from duetto.buffers.recurrent_states import PREFIX, RecurrentStates
from duetto.buffers.replay import Replay
from duetto.buffers.sequence_bounds import cut
from duetto.buffers.storage import EpisodeStorage, Segment, expand
from duetto.errors import CheckpointError, UsageError
from duetto.functional import state_schema
from duetto.functional.returns import n_step_return
from duetto.functional.state_schema import ARRAY, ArrayOf, DictOf
from duetto.networks import masks
from duetto.networks.sequence_input import SequenceInput


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
    def _check_extras(self, experience: Experience) -> None:
        """With `stored_carry`, the extras "carry/<name>" (K, ...) are the network's states before the steps."""
        if self._spec.stored_carry:
            self._carries.check(experience.extras, len(experience.env))

    def _added(self, turn: Experience, index: np.ndarray) -> None:
        self._steps[turn.env] += 1
        self._drop(turn.env)
        if self._spec.stored_carry:
            starts = (self._steps[turn.env] - 1) % (self._length - self._spec.overlap) == 0
            self._carries.keep(index[starts], {name: array[starts] for name, array in turn.extras.items()})
        self._cut(turn.env, turn.terminated | turn.truncated)

    def _interrupted(self, env: np.ndarray) -> None:
        self._cut(env, np.ones(len(env), bool))

    def _drop(self, env: np.ndarray) -> None:
        """Remove sequences and states whose steps, or the steps before them, were overwritten."""
        oldest = self._oldest()[env]
        gone = self._storage.index(env, np.maximum(oldest[:, None] - [1, 2], 0))[oldest > 0].ravel()
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
        found = SequenceSpans(
            index // self.rows, self._storage.number(index), self._length_at[index], self._is_first[index]
        )
        carry = self._carries.read(index.tolist()) if self._spec.stored_carry else {}
        return read(self._storage, self._spec, found, carry)

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
            "carry": self._carries.state_dict(),
        }

    def _load_items(self, state: dict[str, Any]) -> None:
        some = ArrayOf(None, (), np.int64)
        items = {"index": some, "real": some, "is_first": ArrayOf(None, (), np.bool_)}
        form = {"envs": {"steps": self._steps}, "items": items, "carry": DictOf(ARRAY)}
        state_schema.check(state, form, "memory")
        self._steps[:] = state["envs"]["steps"]
        index, real = state["items"]["index"], state["items"]["real"]
        self._check_sequences(index, real, state["items"]["is_first"])
        self._length_at[:] = 0
        self._length_at[index], self._is_first[index] = real, state["items"]["is_first"]
        self._carries.load_state_dict(state["carry"])

    @override
    def all_rows(self, since: np.ndarray) -> Segment:
        """ "kept" says which steps have a recurrent state; "carry/<name>" has those of these steps."""
        segment = self._storage.segment(since)
        index = self._storage.index(*expand(segment["start"], segment["count"]))
        kept = np.isin(index, self._carries.index)
        carry = self._carries.read(index[kept].tolist()) if kept.any() else {}
        return segment | {"kept": kept} | {PREFIX + name: array for name, array in carry.items()}

    def load_segment(self, segment: Segment) -> None:
        """Put steps back, in any order of segments, after `load_state_dict`."""
        carry = {name: array for name, array in segment.items() if name.startswith(PREFIX)}
        self._storage.load_segment({name: part for name, part in segment.items() if name not in {"kept", *carry}})
        kept = ArrayOf(int(segment["count"].sum()), (), np.bool_)
        state_schema.check(segment, {"kept": kept}, "a segment of the memory")
        rows = np.flatnonzero(segment["kept"])
        try:
            self._carries.check(carry, len(rows))
        except ValueError as error:
            raise CheckpointError(f"A segment of the memory is not one of this run: {error}.") from error
        env, number = (part[rows] for part in expand(segment["start"], segment["count"]))
        there = (number >= self._oldest()[env]) & (number < self._storage.written[env])
        self._carries.keep(self._storage.index(env, number)[there], {n: array[there] for n, array in carry.items()})

    def _check_sequences(self, index: np.ndarray, real: np.ndarray, is_first: np.ndarray) -> None:
        """Raise CheckpointError for sequences that cannot exist."""
        places = np.all((index >= 0) & (index < len(self._length_at))) and np.all(np.diff(index) > 0)
        lengths = len(real) == len(is_first) == len(index) and np.all((real > 0) & (real <= self._length))
        if not (places and lengths):
            raise CheckpointError("The checkpoint's sequence memory has sequences where it has no steps.")


class SequenceSpans(NamedTuple):
    """B spans of at most L steps, each within one episode."""

    env: np.ndarray  # (B,)
    first: np.ndarray  # (B,), the number of its first step
    length: np.ndarray  # (B,), steps, 1 .. L
    is_first: np.ndarray  # (B,) bool, it starts its episode


def read(
    storage: EpisodeStorage, spec: SequenceSpec, spans: SequenceSpans, carry: dict[str, np.ndarray]
) -> SequenceBatch:
    """Return the batch of B spans, with the states `carry` before them and weights of 1."""
    length = spec.burn_in + spec.unroll
    step, real = np.arange(length), spans.length[:, None]
    reward, discount = returns(storage, spec, spans, spec.n_step)
    index = storage.index(spans.env, spans.first[:, None] + np.minimum(step, real - 1))
    window = _window(storage, spans, length, carry)
    action = storage.columns["action"].take(index, axis=0)
    if (allowed := masks.mask_of(window.obs)) is not None:  # padding must not take a forbidden action
        action = np.where(step < real, action, allowed[:, :length].argmax(axis=-1))
    return SequenceBatch(
        obs=window,
        action=action,
        reward=reward,
        discount=discount,
        ahead=np.minimum(step + spec.n_step, real),
        weight=np.ones(len(spans.env), np.float32),
        mask=learned_from(spec, spans).astype(np.float32),
        one_step=_first_steps(storage, spec, spans) if spec.one_step and spec.n_step > 1 else None,
    )


def learned_from(spec: SequenceSpec, spans: SequenceSpans) -> np.ndarray:
    """Return a mask (B, L) bool of the steps that are learned from."""
    step = np.arange(spec.burn_in + spec.unroll)
    learned = (step >= spec.burn_in) | (spans.is_first[:, None] & spec.learn_from_start)
    return (step < spans.length[:, None]) & learned


def _first_steps(storage: EpisodeStorage, spec: SequenceSpec, spans: SequenceSpans) -> OneStep:
    step = np.arange(spec.burn_in + spec.unroll)
    return OneStep(*returns(storage, spec, spans, 1), np.minimum(step + 1, spans.length[:, None]))


def _window(storage: EpisodeStorage, spans: SequenceSpans, length: int, carry: dict[str, np.ndarray]) -> SequenceInput:
    """Return the L + 1 observations of each span; where it is shorter, the last one is repeated."""
    env, first, real, is_first = spans
    number = first[:, None] + np.minimum(np.arange(length + 1), real[:, None])
    previous = storage.index(env, number - 1)
    action, reward = (storage.columns[name].take(previous, axis=0) for name in ("action", "reward"))
    action[is_first, 0] = -1 if action.dtype.kind == "i" else 0
    reward[is_first, 0] = 0
    starts = np.zeros(number.shape, bool)
    starts[:, 0] = is_first
    at = np.tile(np.arange(length), (len(env), 1))
    following = np.arange(length + 1) >= real[:, None]
    obs = storage.observation(storage.index(env, number - following), following)
    return SequenceInput(obs, action, reward, starts, carry, is_first, at)


def returns(storage: EpisodeStorage, spec: SequenceSpec, spans: SequenceSpans, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return sums of up to n rewards, and discounts, both (B, L) float32 and 0 behind a span's last step."""
    env, first, real = spans.env, spans.first[:, None, None], spans.length[:, None, None]
    step = np.arange(spec.burn_in + spec.unroll)
    number = first + np.minimum(step[:, None] + np.arange(n), real - 1)  # (B, L, n)
    index = storage.index(env, number).reshape(-1, n)
    reward, terminated = (storage.columns[name].take(index) for name in ("reward", "terminated"))
    left = spans.length[:, None] - step
    # Only a span's last step can be one where the episode is cut: `available` has checked it.
    truncated, available = np.zeros_like(terminated), np.maximum(left, 1).reshape(-1)
    summed, discount, _ = n_step_return(reward, terminated, truncated, available, spec.discount)
    reward, discount = (np.where(left > 0, x.reshape(left.shape), 0).astype(np.float32) for x in (summed, discount))
    return reward, discount
