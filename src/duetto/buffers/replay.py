"""Replay of transitions with n-step returns. Draws are uniform, or in proportion to priorities."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from typing_extensions import override

from duetto.algorithms.base import Batch, OneStep, ReplaySpec, SequenceSpec
from duetto.buffers.base import Experience, Memory, ResolvedItems, Sample
from duetto.buffers.episode_storage import EpisodeStorage, Segment
from duetto.buffers.her import HindsightGoals, Relabeling
from duetto.buffers.sampling import MassItems, PriorityLine, ReplaySampler, checked_priorities
from duetto.buffers.update_schedule import Schedule
from duetto.errors import CheckpointError
from duetto.functional import rng
from duetto.functional.returns import n_step_return


class ReplayMemory(Memory):
    """Base class of replay buffers in this process or in shards: draws, priorities and the update schedule.

    Attributes:
        rows: Capacity of each environment's ring, in steps.
        schedule: When batches are due.
        sampler: Draws items and computes importance weights.
    """

    def __init__(self, spec: Any, num_envs: int, rows: int, stacked: int, random: np.random.Generator) -> None:
        self.spec: Any = spec  # a ReplaySpec or a SequenceSpec
        self._random = random
        self.rows: int = rows
        self.schedule: Schedule = Schedule(spec)
        self.sampler: ReplaySampler = ReplaySampler(spec.prioritization)
        self._sizes = {"environments": num_envs, "rows": rows, "frames": stacked}  # a loaded state must have the same
        if isinstance(spec, SequenceSpec):
            self._sizes |= {"steps of a sequence": spec.burn_in + spec.unroll, "overlap": spec.overlap}

    @property
    def needs_priorities(self) -> bool:
        """Whether `feedback` needs the errors |δ| of a batch."""
        return self.sampler.prioritized

    @property
    @abstractmethod
    def line(self) -> PriorityLine:
        """The number of items, and the sum and the minimum of their p^α (p: priority)."""

    @abstractmethod
    def store(self, experience: Experience) -> None:
        """Store copies of the steps."""

    @abstractmethod
    def resolve(self, point: np.ndarray) -> ResolvedItems:
        """Return the items at the points (B,), which `ReplaySampler.draw` has drawn."""

    @abstractmethod
    def prioritize(self, index: np.ndarray, stamp: np.ndarray, error: np.ndarray) -> None:
        """Set the priorities of items from their errors |δ|. Skip items that were overwritten since the draw.

        All arrays are (B,); `index` and `stamp` are from the `Sample`. The index of an overwritten item has another
        stamp now.
        """

    def raise_largest(self, error: float) -> None:
        """Use `error` as the |δ| of new items, unless they already get a larger one."""
        self.sampler.largest = max(self.sampler.largest, error)

    @override
    def add(self, experience: Experience) -> None:
        """Store copies of the steps, and count them in the schedule."""
        self.store(experience)
        self.schedule.advance(len(experience.env), any((experience.terminated | experience.truncated).tolist()))

    def __len__(self) -> int:
        """Return the number of items that can be sampled."""
        return self.line.items

    def due(self) -> Iterator[Sample]:
        """Yield the batches that are due.

        Each batch is drawn only when the caller requests it, so the draw uses the priorities that the previous batch's
        update has set. Batches that the caller does not request stay due.
        """
        while self.take_due():
            yield self.sample()

    def take_due(self) -> bool:
        """Remove one due batch from the schedule; return False if none is due or the buffer is empty."""
        return self.schedule.due and len(self) > 0 and self.schedule.take()

    def sample(self, size: int | None = None) -> Sample:
        """Return a batch of `size` items, by default `batch_size`. The buffer must not be empty."""
        line = self.line
        found = self.resolve(self.sampler.draw(line, self.spec.batch_size if size is None else size, self._random))
        batch = found.batch
        if self.sampler.prioritized:
            batch = batch._replace(weight=self.sampler.weights(found.mass, line.least))
        return Sample(batch, found.index, found.stamp)

    def feedback(self, sample: Sample, priority: np.ndarray | None) -> None:
        """Update the priorities of a sample's items. If an item occurs twice, its last priority is used.

        Args:
            sample: A sample of this buffer.
            priority: |δ| of transitions, (B,), or of each step of the sequences, (B, L).

        Raises:
            NonFiniteError: A priority is NaN or infinite.
            ValueError: A priority is negative, or `priority` has another shape than the sample.
        """
        if self.sampler.prioritized:
            self.learn_errors(sample.index, sample.stamp, checked_priorities(self.spec, sample, priority))

    def learn_errors(self, index: np.ndarray, stamp: np.ndarray, error: np.ndarray) -> None:
        """Set the priorities of items (B,) from their errors |δ|, and update the largest error so far."""
        self.raise_largest(float(error.max(initial=0.0)))
        self.prioritize(index, stamp, error)

    # ------------------------------------------------------------------------------------------------ checkpoints
    def state_dict(self) -> dict[str, Any]:
        """Return the buffer's sizes, and the states of the schedule, the sampler and the random generator."""
        return {"shape": self._sizes, "schedule": self.schedule.state_dict()} | self.sampler_state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the schedule. Raise CheckpointError if the state is of a buffer with other sizes."""
        saved, sizes = state["shape"], self._sizes
        if saved != sizes:
            words = (f"{name} {saved.get(name)}, here {n}" for name, n in sizes.items() if saved.get(name) != n)
            options = "burn-in, unroll, overlap, replay_capacity" if "overlap" in sizes else "replay_capacity"
            raise CheckpointError(
                f"The checkpoint's replay buffer has other sizes ({'; '.join(words)}). Set {options} and the number of "
                "environments back."
            )
        self.schedule.load_state_dict(state["schedule"])

    def sampler_state(self) -> dict[str, Any]:
        """Return the states of the sampler and the generator."""
        return {"sampler": self.sampler.state_dict(), "random": rng.rng_state(self._random)}

    def load_sampler_state(self, state: dict[str, Any]) -> None:
        """Restore the result of `sampler_state`."""
        self.sampler.load_state_dict(state["sampler"])
        rng.restore_rng(self._random, state["random"])


class Replay(ReplayMemory):
    """A replay buffer of the newest transitions of every environment (Lin, 1992).

    A draw computes n-step returns from the following steps of the same environment. With a `prioritization` (Schaul et
    al., 2016, arXiv:1511.05952), the buffer ignores new priorities of steps that were overwritten.
    """

    def __init__(
        self,
        spec: Any,
        storage: EpisodeStorage,
        random: np.random.Generator,
        goals: HindsightGoals | None = None,
    ) -> None:
        """Called by `buffers.build`. Only this buffer may draw from `random`."""
        super().__init__(spec, len(storage.written), storage.rows, storage.stacked, random)
        self._storage = storage
        uniform = isinstance(spec, ReplaySpec) and spec.prioritization is None
        # For uniform draws each stored step is an item, and the storage finds them.
        self._items = storage if uniform else MassItems(len(storage.written) * storage.rows)
        self._relabeling: Relabeling | None = None
        if isinstance(spec, ReplaySpec) and spec.hindsight is not None:
            assert goals is not None
            self._relabeling = Relabeling(spec.hindsight, storage, goals, spec.discount)

    @property
    @override
    def written(self) -> np.ndarray:
        return self._storage.written.copy()

    # ------------------------------------------------------------------------------------------------ filling
    @override
    def store(self, experience: Experience) -> None:
        self._add_items(self._storage.add(experience))

    def interrupt(self, envs: np.ndarray | None = None) -> None:
        """Truncate the running episodes of all environments, or only of those that `envs` (N,) bool selects."""
        self._storage.interrupt(envs)

    # ------------------------------------------------------------------------------------------------ sampling
    @property
    @override
    def line(self) -> PriorityLine:
        return self._items.line

    @override
    def resolve(self, point: np.ndarray) -> ResolvedItems:
        """Return the items at the drawn points (B,). With HER, replace the goals of some items."""
        self._storage.check_complete()
        index = self._items.find(point)
        batch = self._gather(index)
        if self._relabeling is not None:
            batch = self._relabeling(batch, index, self._random)
        return ResolvedItems(batch, index, self._storage.number(index), self._items.mass(index))

    @override
    def prioritize(self, index: np.ndarray, stamp: np.ndarray, error: np.ndarray) -> None:
        there = (self._items.mass(index) > 0) & (self._storage.number(index) == stamp)
        self._masses.set(index[there], self.sampler.mass(error[there]))

    @property
    def _masses(self) -> MassItems:
        assert isinstance(self._items, MassItems)
        return self._items

    # ------------------------------------------------------------------------------------------------ checkpoints
    @override
    def state_dict(self) -> dict[str, Any]:
        """Return the state without the steps, which `segment` returns.

        "envs" has arrays (num_envs, ...). For transitions, the arrays in "items" have a row for every index, even if no
        step is stored there. For sequences, they have a row for each sequence, whose index is in the array "index".
        """
        return super().state_dict() | {"envs": self._storage.state_dict()}

    @override
    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._storage.load_state_dict(state["envs"])
        self._load_items(state)
        self.load_sampler_state(state)

    @override
    def sampler_state(self) -> dict[str, Any]:
        masses = {"mass": self._items.mass(self._saved_index())} if self.sampler.prioritized else {}
        return super().sampler_state() | {"items": masses}

    @override
    def load_sampler_state(self, state: dict[str, Any]) -> None:
        super().load_sampler_state(state)
        if isinstance(self._items, MassItems):
            index = self._saved_index()
            self._items.fill(index, state["items"].get("mass") if self.sampler.prioritized else np.ones(len(index)))

    @override
    def segment(self, since: np.ndarray) -> Segment:
        """Return each environment i's stored steps from number `since[i]` on (see `EpisodeStorage`)."""
        return self._storage.segment(since)

    @override
    def load_segment(self, segment: Segment) -> None:
        self._storage.load_segment(segment)

    # ------------------------------------------------------------------------------------------------ transitions
    def _add_items(self, index: np.ndarray) -> None:
        if isinstance(self._items, MassItems):
            self._items.add(index, self.sampler.mass(np.full(len(index), self.sampler.largest)))

    def _saved_index(self) -> np.ndarray:
        """Return the indices whose priorities `sampler_state` saves."""
        return np.arange(len(self._storage.written) * self.rows)

    def _load_items(self, state: dict[str, Any]) -> None:
        """Restore the items of a state. For transitions there is nothing to do: their items are the stored steps."""

    def _gather(self, index: np.ndarray) -> Any:
        """Return the batch of the items at `index` (B,), with weights of 1."""
        reward, discount, last = self._one_step(index) if self.spec.n_step == 1 else self._n_steps(index)
        return Batch(
            obs=self._storage.observation(index),
            action=self._storage.columns["action"].take(index, axis=0),
            reward=reward,
            discount=discount,
            next_obs=self._storage.observation(last, 1),
            weight=np.ones(len(index), np.float32),
            one_step=self._first_step(index) if self.spec.one_step and self.spec.n_step > 1 else None,
        )

    def _first_step(self, index: np.ndarray) -> OneStep:
        reward, discount, _ = self._one_step(index)
        return OneStep(reward, discount, self._storage.observation(index, 1))

    def _one_step(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the same as `_n_steps` for n = 1, but faster."""
        discount = np.full(len(index), self.spec.discount, np.float32)
        discount[self._storage.columns["terminated"].take(index)] = 0.0
        return self._storage.columns["reward"].take(index), discount, index

    def _n_steps(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the n-step sums of rewards from `index`, the discounts, and the last steps' indices: all (B,)."""
        window, available = self._storage.ahead(index, self.spec.n_step)
        reward, terminated, truncated = (
            self._storage.columns[name].take(window) for name in ("reward", "terminated", "truncated")
        )
        summed, discount, length = n_step_return(reward, terminated, truncated, available, self.spec.discount)
        last = window[np.arange(len(index)), length - 1]
        return summed.astype(np.float32), discount.astype(np.float32), last
