"""Sequence replay: stretches of successive steps, for recurrent networks (Kapturowski et al., 2019, R2D2).

Which stretches of an episode are sequences is drawn in `cutting`, how their rows are kept in `episodes`, and what a
batch reads from them in `stretches`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from duetto.algorithms.base import Prospect, SequenceBatch, SequenceSpec, Tree
from duetto.errors import CheckpointError, NonFiniteError, UsageError
from duetto.functional import forms, randomness
from duetto.functional.forms import ANY, ARRAY, Each, Rows
from duetto.functional.priorities import sequence_priority
from duetto.memory.base import Experience, Found, Memory, Sample, turns
from duetto.memory.carries import PREFIX, Carries
from duetto.memory.cutting import cut
from duetto.memory.draws import Line, ProportionalDraws, UniformDraws
from duetto.memory.episodes import EpisodeRings
from duetto.memory.judging import SequenceJudgements
from duetto.memory.schedule import Schedule
from duetto.memory.stretches import Stretches, learned_from, read, returns
from duetto.memory.whole import Episode, LeftOut, Stretch, ended, from_sequences, of_rows
from duetto.networks.pictures import Table, held
from duetto.networks.spaces import Space


class SequenceReplay(Memory):
    """The sequences of the newest episodes of every environment. Every step is stored once, though sequences overlap.

    - A row of the capacity holds a step; so does the observation that an episode ends with, and with stacked frames
      each frame from before an episode.
    - A sequence disappears with the first row that it needs; the row before its first step is one of them.
    - A sequence without any step to learn from (`learn_from_start` off, and not longer than the burn-in) is not kept.
    - It is named by the index and the number of its first row.
    - An episode's first sequence is fresh: its network state is exactly the zero state.
    - New sequences get the largest priority, or one from what the actor gave in `extras`; see `judging`.
    """

    def __init__(
        self,
        spec: SequenceSpec,
        observation: Space,
        action: Space,
        num_envs: int,
        rows: int,
        random: np.random.Generator,
        stacked: int = 1,
    ) -> None:
        """Use `memory.build`. `rows` is each environment's share of the capacity; `random` belongs to the memory."""
        self._spec = spec
        self._random = random
        self._length = spec.burn_in + spec.unroll
        self._episodes = EpisodeRings(observation, action, num_envs, rows, stacked, spec.compress)
        self._check_rows(rows)
        self._real = np.zeros(num_envs * rows, np.int32)  # steps of the sequence that begins at each row; 0 for none
        self._fresh = np.zeros(num_envs * rows, bool)  # whether it begins its episode
        self._made = np.zeros(num_envs, np.int64)  # sequences cut from each running episode
        self._gone = np.zeros(num_envs, np.int64)  # no sequence begins at a row below this number any more
        self._carries = Carries()
        priorities = spec.prioritization
        size = num_envs * rows
        self.draws: UniformDraws | ProportionalDraws = (
            UniformDraws(size) if priorities is None else ProportionalDraws(size, priorities)
        )
        self._initial = None if priorities is None else priorities.initial
        self._judged = None if self._initial is None else SequenceJudgements(num_envs, self._length)
        self.schedule: Schedule = Schedule.of(spec)

    def __len__(self) -> int:
        """Return the number of sequences that can be sampled."""
        return len(self.draws)

    @property
    def needs_priorities(self) -> bool:
        """Whether `feedback` wants errors."""
        return self._spec.prioritization is not None

    @property
    def written(self) -> np.ndarray:
        """(num_envs,) int64, rows ever written per environment; a copy."""
        return self._episodes.written.copy()

    @property
    def rows(self) -> int:
        """Rows that each environment's ring can hold."""
        return self._episodes.rows

    # ------------------------------------------------------------------------------------------------ filling
    def add(self, experience: Experience) -> None:
        """Store copies of the steps; sequences may be complete, and batches due, afterwards.

        With `stored_carry`, the `extras` named "carry/<name>" (K, ...) are the network's states before the steps.

        Raises:
            ValueError, TypeError, UsageError: see `EpisodeRings.check`. Then nothing is stored.
        """
        self._episodes.check(experience)
        if self._spec.stored_carry:
            self._carries.check(experience.extras, len(experience.env))
        for turn in turns(experience):
            number = self._episodes.add(turn)
            self._drop()
            if self._spec.stored_carry:
                self._keep_carries(turn, number)
            if self._judged is not None:
                self._judged.note(turn.env, number, turn.extras)
                self._judge(*self._judged.whole(turn.env), over=False)
            self._cut(turn.env, number, turn.terminated | turn.truncated)
        self.schedule.advance(len(experience.env), episode_ended=False)

    def interrupt(self, envs: np.ndarray | None = None) -> None:
        """Note that every environment, or those in `envs` (N,) bool, begins an episode though its last did not end: it
        counts as truncated.
        """
        running = self._episodes.running
        env = np.flatnonzero(running if envs is None else running & envs)
        number = self._episodes.written[env] - 1
        self._episodes.finish(env)
        if self._judged is not None:
            self._judged.waiting[env] = -1
        self._cut(env, number, np.ones(len(env), bool))

    def _drop(self) -> None:
        """Forget sequences and states whose rows are gone, or that need a row before theirs which is."""
        limit = self._limit()
        count = limit - self._gone
        if count.any():
            number = self._gone[:, None] + np.arange(count.max())
            index = self._episodes.index(np.arange(len(limit)), number)[number < limit[:, None]]
            self._gone = limit
            self._carries.drop(index)
            index = index[self._real[index] > 0]
            if len(index):
                self._real[index] = 0
                self.draws.remove(index)

    def _limit(self) -> np.ndarray:
        """Return the first row (num_envs,) that a sequence can begin at."""
        oldest = self._episodes.oldest
        return np.where(oldest > 0, oldest + self._episodes.lead, 0)  # never falls: `oldest` grows with every write

    def _keep_carries(self, turn: Experience, number: np.ndarray) -> None:
        period = self._length - self._spec.overlap
        begins = (self._episodes.steps[turn.env] - 1) % period == 0
        index = self._episodes.index(turn.env[begins], number[begins])
        self._carries.keep(index, {name: array[begins] for name, array in turn.extras.items()})

    def _cut(self, env: np.ndarray, number: np.ndarray, done: np.ndarray) -> None:
        """Make sequences that are complete with the steps at the rows `number` (K,) of different environments."""
        spec, steps = self._spec, self._episodes.steps[env]
        complete, start, real = cut(steps, self._made[env], done, self._length, spec.overlap)
        self._made[env] = np.where(done, 0, self._made[env] + complete)
        learnable = (real > spec.burn_in) | spec.learn_from_start
        which = np.flatnonzero(complete & learnable)
        if len(which):
            index = self._episodes.index(env, number - steps + 1 + start)[which]
            self._real[index] = real[which]
            self._fresh[index] = start[which] == 0
            self.draws.add(index)
            if self._judged is not None:
                env, first, over = env[which], self._episodes.number(index), done[which]
                self._judged.waiting[env[~over]] = first[~over]
                self._judge(env[over], first[over], over=True)

    def _judge(self, env: np.ndarray, first: np.ndarray, over: bool) -> None:
        """Give the sequences (B,) the priority that follows from what their actor knew, where it knew enough.

        `over` says that their episodes ended with their last steps.
        """
        index = self._episodes.index(env, first)
        there = (self._real[index] > 0) & (self._episodes.number(index) == first)
        if there.any():
            index, env, first = index[there], env[there], first[there]
            stretches = Stretches(env, first, self._real[index], self._fresh[index])
            mask = learned_from(self._spec, stretches)
            priority = sequence_priority(self._errors(stretches, over), mask, self._spec.priority_mix)
            known = np.isfinite(priority)
            self.draws.feedback(index[known], priority[known])

    def _errors(self, stretches: Stretches, over: bool) -> np.ndarray:
        """Return |δ| (B, L), NaN where it is not known, anything behind a stretch's last step."""
        judged, initial, spec = self._judged, self._initial, self._spec
        assert judged is not None
        assert initial is not None
        env, first, real = stretches.env, stretches.first[:, None], stretches.real[:, None]
        step = np.arange(self._length)

        def prospect(n: int) -> Prospect:
            ahead = np.minimum(step + n, real)
            return judged.ahead(
                *returns(self._episodes, spec, stretches, n), env, first + ahead, (ahead == real) & over
            )

        single = prospect(1) if spec.one_step and spec.n_step > 1 else None
        return initial(judged.taken(env, first + step), prospect(spec.n_step), single).astype(np.float64)

    # ------------------------------------------------------------------------------------------------ sampling
    def due(self) -> Iterator[Sample]:
        """Yield the batches that should be learned from now, as in `Replay`; they wait for the first sequence."""
        while len(self) and self.schedule.take():
            yield self.sample()

    def sample(self, size: int | None = None) -> Sample:
        """A batch of `size` sequences, by default `batch_size`, drawn with replacement.

        Raises:
            ValueError: there is no sequence yet.
        """
        if not len(self):
            raise ValueError("The memory holds no sequence: add more steps before sampling")
        index, weight = self.draws.draw(self._spec.batch_size if size is None else size, self._random)
        return Sample(self._gather(index, weight), index, self._episodes.number(index))

    def feedback(self, sample: Sample, priority: np.ndarray | None) -> None:
        """Give the sequences of `sample` new priorities from |δ| (B, L), of which only steps learned from count.

        A sequence that is gone by now is left alone; if one comes twice, its last priority stays.

        Raises:
            NonFiniteError: an error is NaN or infinite.
            ValueError: an error is negative, or their shape is not the sample's.
        """
        if not self.needs_priorities:
            return
        assert isinstance(sample.batch, SequenceBatch)
        self.prioritize(sample.index, sample.stamp, priorities(priority, sample.batch.mask, self._spec.priority_mix))

    # What a shard of a larger memory is asked for: see `shards`.
    @property
    def line(self) -> Line:
        """The `Line` of all items."""
        return self.draws.line

    def resolve(self, point: np.ndarray) -> Found:
        """Return the sequences at points (B,) of the line."""
        index = self.draws.find(point)
        batch = self._gather(index, np.ones(len(index), np.float32))
        return Found(batch, index, self._episodes.number(index), self.draws.mass(index))

    def prioritize(self, index: np.ndarray, stamp: np.ndarray, priority: np.ndarray) -> None:
        """Give the sequences at `index` (B,) new priorities (B,), where they are still those of `stamp`."""
        there = (self._real[index] > 0) & (self._episodes.number(index) == stamp)
        self.draws.feedback(index[there], priority[there])
        if self._judged is not None:
            self._judged.settle(index // self.rows, stamp)

    def _gather(self, index: np.ndarray, weight: np.ndarray) -> SequenceBatch:
        first, real, fresh = self._episodes.number(index), self._real[index], self._fresh[index]
        carry = self._carries.read(index.tolist()) if self._spec.stored_carry else {}
        return read(self._episodes, self._spec, Stretches(index // self.rows, first, real, fresh), carry, weight)

    def episodes(self, left: LeftOut) -> Iterator[Episode]:
        """The whole episodes that are stored, each environment's in order; what is in none is counted in `left`.

        Where an episode begins and ends is known from its sequences alone: those too short for one are in none.
        """
        index = np.flatnonzero(self._real)
        number, stretches = self._episodes.number(index), list[Stretch]()
        for env in range(len(self._made)):
            own = np.flatnonzero(index // self.rows == env)
            own = own[number[own].argsort()]
            found = from_sequences(env, number[own], self._real[index[own]], self._fresh[index[own]])
            written = int(self.written[env])
            running = written - int(self._episodes.steps[env]) if self._episodes.running[env] else None
            oldest = max(int(self._episodes.oldest[env]), 0)
            stretches += ended(found, oldest, written, running, self._episodes.before, left)

        def rows(name: str, env: int, number: np.ndarray) -> Tree:
            envs = np.full(len(number), env)
            if name == "obs":
                return held(self._episodes.observation(envs, number))
            return self._episodes.read(name, envs, number)

        return of_rows(rows, stretches)

    def image_tables(self) -> dict[str, Table]:
        """See `Memory.image_tables`."""
        return self._episodes.image_tables()

    # ------------------------------------------------------------------------------------------------ checkpoints
    def state_dict(self) -> dict[str, Any]:
        """Return everything but rows and recurrent states, which `segment` hands out."""
        index = np.flatnonzero(self._real)
        return {
            "shape": self._shape(),
            "episodes": self._episodes.state_dict(),
            "made": self._made.copy(),
            "gone": self._gone.copy(),
            "sequences": {"index": index, "real": self._real[index], "fresh": self._fresh[index]},
            "draws": self.draws.state_dict(index),
            "carry": self._carries.state_dict(),
            "schedule": self.schedule.state_dict(),
            "random": randomness.state_of(self._random),
        } | ({} if self._judged is None else {"judged": self._judged.state_dict()})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned; the rows follow with `load_segment`.

        Raises:
            CheckpointError: the state is that of a memory with other sizes.
        """
        check_state(state, self._shape())
        forms.check(state, self._form(), "memory")
        self.draws.remove(np.flatnonzero(self._real))
        self._episodes.load_state_dict(state["episodes"])
        self._made[:], self._gone[:] = state["made"], state["gone"]
        index = state["sequences"]["index"]
        self._check_sequences(index, state["sequences"]["real"])
        self._real[:] = 0
        self._real[index], self._fresh[index] = state["sequences"]["real"], state["sequences"]["fresh"]
        self.draws.load_state_dict(index, state["draws"])
        self._carries.load_state_dict(state["carry"])
        if self._judged is not None:
            self._judged = SequenceJudgements(len(self._made), self._length)
            if state.get("judged") is not None:  # none is there of a time before this was asked for
                self._judged.load_state_dict(state["judged"])
        self.schedule.load_state_dict(state["schedule"])
        randomness.restore(self._random, state["random"])

    def emptied(self, state: dict[str, Any]) -> dict[str, Any]:
        """See `Memory.emptied`. Its episodes cannot be gone on with in their middle: new ones have to begin."""
        return emptied(state)

    def segment(self, since: np.ndarray) -> dict[str, np.ndarray] | None:
        """The rows written after the counts `since` (num_envs,) and still stored, as flat arrays; None for no rows.

        See `Rings.segment`. The recurrent states kept with them are (M, ...) arrays "carry/<name>", and "carry_env" and
        "carry_number" (M,) name their rows.
        """
        segment = self._episodes.segment(since)
        index = self._carries.index
        env, number = index // self.rows, self._episodes.number(index)
        new = number >= since[env]
        if segment is None or not new.any():
            return segment
        carry = {PREFIX + name: array for name, array in self._carries.read(index[new].tolist()).items()}
        return segment | {"carry_env": env[new], "carry_number": number[new]} | carry

    def load_segment(self, segment: dict[str, np.ndarray]) -> None:
        """Put rows back, in any order of segments, after `load_state_dict`."""
        carry = {name: array for name, array in segment.items() if name.startswith("carry")}
        self._episodes.load({name: array for name, array in segment.items() if name not in carry})
        if carry:
            self._check_carry(carry)
            env, number = carry.pop("carry_env"), carry.pop("carry_number")
            there = (number >= self._gone[env]) & (number < self._episodes.written[env])
            index = self._episodes.index(env, number)[there]
            self._carries.keep(index, {name: array[there] for name, array in carry.items()})

    def _check_carry(self, carry: dict[str, np.ndarray]) -> None:
        some = Rows(None, (), np.int64)
        forms.check(carry, {"carry_env": some, "carry_number": some}, "a segment of the memory")
        env, number = carry["carry_env"], carry["carry_number"]
        try:
            self._carries.check(carry, len(env))
        except ValueError as error:
            raise CheckpointError(f"A segment of the memory is not one of this run: {error}.") from error
        if len(env) != len(number) or np.any((env < 0) | (env >= len(self._made))):
            raise CheckpointError("A segment of the memory has recurrent states of no step.")

    def _form(self) -> dict[str, Any]:
        some = Rows(None, (), np.int64)
        return {
            "episodes": ANY,
            "made": self._made,
            "gone": self._gone,
            "sequences": {"index": some, "real": some, "fresh": Rows(None, (), np.bool_)},
            "draws": ANY,
            "carry": Each(ARRAY),
            "schedule": ANY,
            "random": ANY,
        }

    def _check_sequences(self, index: np.ndarray, real: np.ndarray) -> None:
        """Raise CheckpointError for sequences that cannot exist, or more rows to forget than there are."""
        places = np.all((index >= 0) & (index < len(self._real))) and np.all(np.diff(index) > 0)
        lengths = len(real) == len(index) and np.all((real > 0) & (real <= self._length))
        left = self._limit() - self._gone
        if not (places and lengths and np.all((left >= 0) & (left <= self.rows))):
            raise CheckpointError("The checkpoint's sequence memory has sequences where it has no steps.")

    def _shape(self) -> dict[str, int]:
        return shape(self._spec, len(self._made), self.rows)

    def _check_rows(self, rows: int) -> None:
        needed = self._length + self._episodes.lead + 1
        if rows < needed:
            raise UsageError(
                f"replay_capacity gives each environment {rows} rows, but a sequence of {self._length} steps needs "
                f"{needed}. Raise replay_capacity."
            )


def shape(spec: SequenceSpec, num_envs: int, rows: int) -> dict[str, int]:
    """Return the sizes that must be the same for a memory to take over another's state."""
    length = spec.burn_in + spec.unroll
    return {"environments": num_envs, "rows": rows, "steps of a sequence": length, "overlap": spec.overlap}


def check_state(state: dict[str, Any], shape: dict[str, int]) -> None:
    """Raise CheckpointError for a state of a memory with other sizes than `shape`."""
    forms.check(state, {"shape": Each(int)}, "memory")
    if state["shape"] != shape:
        words = (f"{name} {state['shape'].get(name)}, here {value}" for name, value in shape.items())
        raise CheckpointError(
            f"The checkpoint's sequence memory is another one ({'; '.join(words)}). Set replay_capacity, the "
            "number of environments, burn-in, unroll and overlap back."
        )


def emptied(state: dict[str, Any]) -> dict[str, Any]:
    """Return the state changed so that no row was written; see `Memory.emptied`."""
    return state | {
        "episodes": EpisodeRings.emptied(state["episodes"]),
        "made": np.zeros_like(state["made"]),
        "gone": np.zeros_like(state["gone"]),
        "sequences": {name: part[:0] for name, part in state["sequences"].items()},
        "draws": {name: part[:0] if name == "mass" else part for name, part in state["draws"].items()},
        "schedule": dict(Schedule.BEGINNING),
        "judged": None,
    }


def priorities(error: np.ndarray | None, mask: np.ndarray, mix: float) -> np.ndarray:
    """Return the priorities (B,) of sequences, from |δ| (B, L); `SequenceReplay.feedback` lists the errors raised."""
    return sequence_priority(_checked(error, mask), mask, mix)


def _checked(priority: np.ndarray | None, mask: np.ndarray) -> np.ndarray:
    if priority is None:
        raise ValueError("Prioritised replay needs the errors of every step of the sample, not None")
    error = np.asarray(priority, np.float64)
    if error.shape != mask.shape:
        raise ValueError(f"The errors have shape {error.shape}, the sample's steps {mask.shape}")
    counted = np.where(mask > 0, error, 0.0)
    if not np.isfinite(counted).all():
        row, step = np.argwhere(~np.isfinite(counted))[0].tolist()
        raise NonFiniteError(
            f"The error of step {step} in sequence {row} of the batch is {error[row, step]}: the loss has diverged. "
            "Lower the learning rate, or clip the gradients."
        )
    if counted.min() < 0:
        raise ValueError(f"An error is {counted.min()}; they are absolute, never negative")
    return error
