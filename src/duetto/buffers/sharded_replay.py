"""A replay buffer whose environments are distributed over shards, with one generator and one schedule.

    line of all      |   shard 0   | shard 1 |      shard 2      |      each as long as its items are together
    points                ^  ^         ^        ^     ^   ^             drawn here; a shard looks up its own

Uniform batches equal those of one buffer bit by bit, for any number of shards: points are integers. Prioritized ones
equal them except for the rounding of sums, and bit by bit with one shard.

New steps and feedback wait for the next message, or until there are many:

    here       | steps 0 | steps 1 | a batch is due: all that waits .... | points ... | learn, errors | steps 2 |
    a shard    |         |         | store 0, store 1, count             | look up    |               |         |

Steps may be in other processes (`remote_blocks`): a shard gets references once for many vector steps, and then the
order to store each.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from duetto.buffers import shard_states
from duetto.buffers.base import Experience, ResolvedItems, Sample, selected
from duetto.buffers.factory import ReplayFactory
from duetto.buffers.remote_blocks import BlockGroup, BlockRef, RemoteBlock
from duetto.buffers.replay import ReplayMemory
from duetto.buffers.replay_shard import ShardRequest, Shards, ShardStatus, StoredBlock
from duetto.buffers.sampling import checked_priorities
from duetto.buffers.sharded_sampler import ShardedSampler, ShardPiece
from duetto.functional import rng

WITH_LARGEST = ("add", "take", "interrupt", "hold")  # methods whose last argument is the largest |δ| of all shards
WAITING = 16  # the largest number of requests that wait for a message to a shard


class ShardedReplay(ReplayMemory):
    """A `Replay` or `SequenceReplay` in shards."""

    def __init__(self, factory: ReplayFactory, num_envs: int, random: np.random.Generator, shards: Shards) -> None:
        """Use `buffers.build`. Nothing else may draw from `random`."""
        super().__init__(factory.spec, num_envs, factory.rows, factory.stacked, random)
        self._shards, self._shares = shards, shards.shares
        self._firsts = np.array([share.start for share in self._shares])
        self._stacks = factory.stacks()
        self.sampler: ShardedSampler = ShardedSampler(factory.spec, self._settle)
        self._waiting: dict[int, list[ShardRequest]] = {}  # requests not sent yet
        self._asked: set[int] = set()  # shards that have not answered yet
        self._held: list[int | None] = [None] * len(self._shares)  # the number of each shard's newest group
        self._values: list[list[Any]] = [[] for _ in self._shares]  # references for a waiting `hold`
        statuses = self._shards.begin(factory)
        self._written = [status.written for status in statuses]
        self.sampler.lines = [status.line for status in statuses]

    def __len__(self) -> int:
        """Return the number of items that can be sampled."""
        return len(self.sampler)

    @property
    def written(self) -> np.ndarray:
        """(num_envs,) int64, steps ever stored per environment; a copy."""
        self._settle()
        return np.concatenate(self._written)

    # ------------------------------------------------------------------------------------------------ filling
    def add(self, experience: Experience) -> None:
        """Store copies of the steps; a batch may be due afterwards.

        Raises:
            UsageError: See `EpisodeStorage.check`; raised here, where environments have their numbers.
        """
        self._stacks.check_steps(experience)
        for index, rows in self._of_each(experience.env):
            own = selected(experience, rows)
            self._ask(index, "add", own._replace(env=own.env - self._firsts[index]))
        self.schedule.advance(len(experience.env), bool((experience.terminated | experience.truncated).any()))

    def take(self, step: Experience | RemoteBlock) -> None:
        """See Memory. The vector steps of a group come in order."""
        if isinstance(step, Experience):
            self.add(step)
            return
        group = step.group
        for index, share in enumerate(self._shares):
            own = [one for one in group.blocks if one.share.start < share.stop and share.start < one.share.stop]
            if not own:
                continue
            if self._held[index] != group.number:
                self._hold(index, group, own)
            self._ask(index, "take", group.number, step.step)
        self.schedule.advance(len(step.env), step.ended)

    def _hold(self, index: int, group: BlockGroup, own: list[BlockRef]) -> None:
        """Let a shard fetch its blocks of a group."""
        if self._values[index]:  # a message has one `hold`
            self._send(index)
        self._held[index], self._values[index] = group.number, [block.value for block in own]
        self._ask(index, "hold", group.number, [StoredBlock(one.share, one.counts) for one in own], group.extras)

    def interrupt(self, envs: np.ndarray | None = None) -> None:
        """Truncate the episodes of all environments, or of those in `envs` (N,) bool: new ones begin."""
        for index, share in enumerate(self._shares):
            self._ask(index, "interrupt", None if envs is None else envs[share.start : share.stop])

    # ------------------------------------------------------------------------------------------------ sampling
    def sample(self, size: int | None = None) -> Sample:
        """Return a batch of `size` items, by default `batch_size`.

        Raises:
            ValueError: nothing is stored yet.
        """
        if not len(self):
            raise ValueError("The memory is empty: add steps before sampling")
        wanted = self._spec.batch_size if size is None else size
        pieces = self.sampler.pieces(wanted, self._random)
        for piece in pieces:
            self._ask(piece.shard, "resolve", piece.point)
        found = self._settle()
        return self._sampled(pieces, [found[piece.shard] for piece in pieces])

    def _sampled(self, pieces: list[ShardPiece], found: list[ResolvedItems]) -> Sample:
        rows = [piece.rows for piece in pieces]
        index = [one.index + self._firsts[piece.shard] * self.rows for piece, one in zip(pieces, found, strict=True)]
        batch = shard_states.scattered([one.batch for one in found], rows)
        mass, stamp = (
            shard_states.scattered([getattr(one, name) for one in found], rows) for name in ("mass", "stamp")
        )
        return Sample(batch._replace(weight=self.sampler.weights(mass)), shard_states.scattered(index, rows), stamp)

    def feedback(self, sample: Sample, priority: np.ndarray | None) -> None:
        """Give the sampled items new priorities; see `Replay.feedback`."""
        if not self.needs_priorities:
            return
        error = checked_priorities(self._spec, sample, priority)
        self.sampler.largest = max(self.sampler.largest, float(error.max()))
        for index, rows in self._of_each(sample.index // self.rows):
            place = sample.index[rows] - self._firsts[index] * self.rows
            self._ask(index, "prioritize", place, sample.stamp[rows], error[rows])

    # ------------------------------------------------------------------------------------------------ checkpoints
    def state_dict(self) -> dict[str, Any]:
        """Return the state of one buffer with all environments."""
        self._settle()
        for index in range(len(self._shares)):
            self._ask(index, "state_dict")
        states = self._settle()
        whole = shard_states.join_states([states[index] for index in range(len(self._shares))], self._shares, self.rows)
        return whole | {
            "shape": self._sizes,
            "sampler": whole["sampler"] | self.sampler.state_dict(),
            "schedule": self.schedule.state_dict(),
            "random": rng.rng_state(self._random),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the result of `state_dict`; the steps follow with `load_segment`.

        Raises:
            CheckpointError: The state is that of a buffer with other sizes.
        """
        self._check_state(state)
        self._settle()
        for index, share in enumerate(self._shares):
            self._ask(index, "load_state_dict", shard_states.take_state(state, share, self.rows))
        self._settle()
        self.schedule.load_state_dict(state["schedule"])
        rng.restore_rng(self._random, state["random"])
        self.sampler.load_state_dict(state["sampler"])

    def segment(self, since: np.ndarray) -> dict[str, np.ndarray] | None:
        """Return the steps stored after the counts `since` (num_envs,), as one buffer would."""
        self._settle()
        for index, share in enumerate(self._shares):
            self._ask(index, "segment", since[share.start : share.stop])
        segments = self._settle()
        return shard_states.join_segments([segments[index] for index in range(len(self._shares))], self._written)

    def load_segment(self, segment: dict[str, np.ndarray]) -> None:
        """Put steps back, in any order of segments, after `load_state_dict`."""
        self._settle()
        for index, share in enumerate(self._shares):
            if (own := shard_states.take_segment(segment, share)) is not None:
                self._ask(index, "load_segment", own)
        self._settle()

    # ------------------------------------------------------------------------------------------------ shards
    def _of_each(self, env: np.ndarray) -> list[tuple[int, np.ndarray]]:
        """Return the shards of these environments (K,), each with the positions of its own."""
        shard = self._firsts.searchsorted(env, side="right") - 1
        return [(index, np.flatnonzero(shard == index)) for index in np.unique(shard).tolist()]

    def _ask(self, index: int, method: str, *arguments: Any) -> None:
        """Queue a request to a shard; send the queue if it is long."""
        waiting = self._waiting.setdefault(index, [])
        largest = (self.sampler.largest,) if method in WITH_LARGEST else ()
        waiting.append((method, arguments + largest))
        if len(waiting) >= WAITING:
            self._send(index)

    def _send(self, index: int) -> None:
        """Send a shard its queued requests."""
        if index in self._asked:
            self._collect()
        values, self._values[index] = self._values[index], []
        self._asked.add(index)
        self._shards.post(index, self._waiting.pop(index), *values)

    def _settle(self) -> dict[int, Any]:
        """Send all queued requests, wait, and return each shard's last answer."""
        found: dict[int, Any] = {}
        while self._asked or self._waiting:
            if self._asked:
                found |= self._collect()
            for index in list(self._waiting):
                self._send(index)
        return found

    def _collect(self) -> dict[int, Any]:
        """Wait for the answers, note the counts, and return each shard's last answer."""
        self._asked.clear()
        replies = self._shards.wait()
        for index, reply in replies.items():
            for status in reply:
                if isinstance(status, ShardStatus):
                    self._written[index] = status.written
                    self.sampler.lines[index] = status.line
        return {index: reply[-1] for index, reply in replies.items()}
