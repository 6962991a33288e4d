"""Replay of transitions: n-step returns of the stored steps, drawn uniformly or in proportion to priorities."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from typing_extensions import override

from duetto.algorithms.base import Batch, OneStep, ReplaySpec, SequenceSpec
from duetto.buffers.base import Experience, Memory, ResolvedItems, Sample
from duetto.buffers.her import HindsightGoals, Relabeling
from duetto.buffers.sampling import MassItems, PriorityLine, ReplaySampler, checked_priorities
from duetto.buffers.storage import EpisodeStorage, Segment
from duetto.buffers.update_schedule import Schedule
from duetto.errors import CheckpointError
from duetto.functional import rng, state_schema
from duetto.functional.returns import n_step_return
from duetto.functional.state_schema import ANY, ArrayOf, DictOf


class ReplayMemory(Memory):
    """The parts that a replay buffer in this process and one in shards share: drawing, priorities, counts.

    Attributes:
        rows: Steps that each environment's ring can hold: those older than `written - rows` are gone.
        schedule: When batches are due.
        sampler: How items are drawn.
    """

    def __init__(self, spec: Any, num_envs: int, rows: int, stacked: int, random: np.random.Generator) -> None:
        self._spec: Any = spec  # a ReplaySpec or a SequenceSpec
        self._random = random
        self.rows: int = rows
        self.schedule: Schedule = Schedule.of(spec)
        self.sampler: ReplaySampler = ReplaySampler(spec.prioritization)
        self._sizes = {"environments": num_envs, "rows": rows, "frames": stacked}  # the same in a state to be loaded
        if isinstance(spec, SequenceSpec):
            self._sizes |= {"steps of a sequence": spec.burn_in + spec.unroll, "overlap": spec.overlap}

    @property
    def needs_priorities(self) -> bool:
        """Whether `feedback` needs errors."""
        return self.sampler.prioritized

    @property
    @abstractmethod
    def line(self) -> PriorityLine:
        """The line of all items."""

    @abstractmethod
    def store(self, experience: Experience) -> None:
        """Store copies of the steps."""

    @abstractmethod
    def resolve(self, point: np.ndarray) -> ResolvedItems:
        """Return the items at points (B,) of the line."""

    @abstractmethod
    def prioritize(self, index: np.ndarray, stamp: np.ndarray, error: np.ndarray) -> None:
        """Give the items at `index` (B,) new errors |δ| (B,), if they are still those of `stamp`."""

    def raise_largest(self, error: float) -> None:
        """Give new items at least this |δ|."""
        self.sampler.largest = max(self.sampler.largest, error)

    @override
    def add(self, experience: Experience) -> None:
        """Store copies of the steps; a batch may be due afterwards."""
        self.store(experience)
        self.schedule.advance(len(experience.env), any((experience.terminated | experience.truncated).tolist()))

    def __len__(self) -> int:
        """Return the number of items that can be sampled."""
        return self.line.items

    def due(self) -> Iterator[Sample]:
        """Yield the batches that are due; none are due before the first item.

        Each batch is drawn on request, so it sees the new priorities of the previous batch. A batch that is not
        requested stays due.
        """
        while self.take_due():
            yield self.sample()

    def take_due(self) -> bool:
        """Take a batch that is due; return False if there is none, or nothing to sample."""
        return self.schedule.due and len(self) > 0 and self.schedule.take()

    def sample(self, size: int | None = None) -> Sample:
        """Return a batch of `size` items, by default `batch_size`; there must be one."""
        line = self.line
        found = self.resolve(self.sampler.draw(line, self._spec.batch_size if size is None else size, self._random))
        batch = found.batch
        if self.sampler.prioritized:
            batch = batch._replace(weight=self.sampler.weights(found.mass, line.least))
        return Sample(batch, found.index, found.stamp)

    def feedback(self, sample: Sample, priority: np.ndarray | None) -> None:
        """Update the priorities of a sample's items. If an item occurs twice, its last one counts.

        Args:
            sample: A sample of this memory.
            priority: |δ| (B,), or of sequences (B, L).

        Raises:
            NonFiniteError: A priority is NaN or infinite.
            ValueError: A priority is negative, or their number is not the sample's.
        """
        if self.sampler.prioritized:
            error = checked_priorities(self._spec, sample, priority)
            self.raise_largest(float(error.max(initial=0.0)))
            self.prioritize(sample.index, sample.stamp, error)

    # ------------------------------------------------------------------------------------------------ checkpoints
    def state_dict(self) -> dict[str, Any]:
        """Return the sizes and the states of the schedule and the sampler."""
        return {"shape": self._sizes, "schedule": self.schedule.state_dict()} | self.sampler_state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the schedule. Raises CheckpointError if the buffer has other sizes."""
        state_schema.check(state, {"shape": DictOf(int)}, "memory")
        saved, sizes = state["shape"], self._sizes
        if saved != sizes:
            words = (f"{name} {saved.get(name)}, here {n}" for name, n in sizes.items() if saved.get(name) != n)
            options = "burn-in, unroll, overlap, replay_capacity" if "overlap" in sizes else "replay_capacity"
            raise CheckpointError(
                f"The checkpoint's replay memory has other sizes ({'; '.join(words)}). Set {options} and the number of "
                "environments back."
            )
        envs, items = ArrayOf(sizes["environments"], None), ArrayOf(None, ())
        state_schema.check(state, {"envs": DictOf(envs), "items": DictOf(items), "schedule": ANY}, "memory")
        self.schedule.load_state_dict(state["schedule"])

    def sampler_state(self) -> dict[str, Any]:
        """Return the state of draws."""
        return {"sampler": self.sampler.state_dict(), "random": rng.rng_state(self._random)}

    def load_sampler_state(self, state: dict[str, Any]) -> None:
        """Restore the result of `sampler_state`."""
        state_schema.check(state, {"items": dict, "sampler": dict, "random": ANY}, "memory")
        self.sampler.load_state_dict(state["sampler"])
        rng.restore_rng(self._random, state["random"])


class Replay(ReplayMemory):
    """The newest transitions of every environment (Lin, 1992), and batches drawn from them.

    n-step sums are made when a batch is read, from the steps that follow in the same environment. With a
    `prioritization` (Schaul et al., 2016, arXiv:1511.05952), a priority fed back for a step that was overwritten
    meanwhile is ignored.
    """

    def __init__(
        self,
        spec: Any,
        storage: EpisodeStorage,
        random: np.random.Generator,
        goals: HindsightGoals | None = None,
    ) -> None:
        """Use `buffers.build`. `random` belongs to the memory."""
        super().__init__(spec, len(storage.written), storage.rows, storage.stacked, random)
        self._storage = storage
        every_step = isinstance(spec, ReplaySpec) and spec.prioritization is None
        self._items = storage if every_step else MassItems(len(storage.written) * storage.rows)
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
        self._added(experience, self._storage.add(experience))

    def interrupt(self, envs: np.ndarray | None = None) -> None:
        """Truncate the episodes of all environments, or of those in `envs` (N,) bool: new ones start."""
        self._interrupted(self._storage.interrupt(envs))

    # ------------------------------------------------------------------------------------------------ sampling
    @property
    @override
    def line(self) -> PriorityLine:
        return self._items.line

    @override
    def resolve(self, point: np.ndarray) -> ResolvedItems:
        """Return the items at points (B,) of the line, with other goals if the spec has hindsight."""
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
        """Return everything but the steps, which `segment` hands out.

        "envs" has arrays (num_envs, ...), "items" arrays of items: of those with an "index", or else of every index.
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
        """Return the steps stored after the counts `since` (num_envs,); see `EpisodeStorage.segment`."""
        return self._storage.segment(since)

    @override
    def load_segment(self, segment: Segment) -> None:
        self._storage.load_segment(segment)

    # ------------------------------------------------------------------------------------------------ transitions
    def _added(self, steps: Experience, index: np.ndarray) -> None:
        """Make items of the steps just stored at `index` (K,), of different environments."""
        self._add_items(index)
        if self._relabeling is not None and (steps.terminated | steps.truncated).any():
            self._relabeling.stale = True

    def _interrupted(self, env: np.ndarray) -> None:
        if self._relabeling is not None:
            self._relabeling.stale = True

    def _add_items(self, index: np.ndarray) -> None:
        if isinstance(self._items, MassItems):
            self._items.add(index, self.sampler.mass(np.full(len(index), self.sampler.largest)))

    def _saved_index(self) -> np.ndarray:
        """Return the indices whose masses a state holds."""
        return np.arange(len(self._storage.written) * self.rows)

    def _load_items(self, state: dict[str, Any]) -> None:
        if self._relabeling is not None:
            self._relabeling.stale = True

    def _gather(self, index: np.ndarray) -> Any:
        """Return the batch of the items at `index` (B,), with weights of 1."""
        reward, discount, last = self._one_step(index) if self._spec.n_step == 1 else self._n_steps(index)
        return Batch(
            obs=self._storage.observation(index),
            action=self._storage.columns["action"].take(index, axis=0),
            reward=reward,
            discount=discount,
            next_obs=self._storage.observation(last, 1),
            weight=np.ones(len(index), np.float32),
            one_step=self._first_step(index) if self._spec.one_step and self._spec.n_step > 1 else None,
        )

    def _first_step(self, index: np.ndarray) -> OneStep:
        reward, discount, _ = self._one_step(index)
        return OneStep(reward, discount, self._storage.observation(index, 1))

    def _one_step(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """`_n_steps` for n = 1, where a window is its transition: `n_step_return` in one line, for speed."""
        discount = np.full(len(index), self._spec.discount, np.float32)
        discount[self._storage.columns["terminated"].take(index)] = 0.0
        return self._storage.columns["reward"].take(index), discount, index

    def _n_steps(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return reward and discount (B,) of the windows that start at `index`, and the index of their last step."""
        window, available = self._storage.ahead(index, self._spec.n_step)
        reward, terminated, truncated = (
            self._storage.columns[name].take(window) for name in ("reward", "terminated", "truncated")
        )
        summed, discount, length = n_step_return(reward, terminated, truncated, available, self._spec.discount)
        last = window[np.arange(len(index)), length - 1]
        return summed.astype(np.float32), discount.astype(np.float32), last
