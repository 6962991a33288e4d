"""Parts of one replay memory, each with some of the environments, in whichever process.

    whoever draws    points of the whole line ........... | weights | learns | new priorities, new steps
    shard 0          |  what lies at those that are its own                  |  keeps them
    shard 1          |  what lies at those that are its own                  |  keeps them

A shard decides nothing: it draws no random number, counts no batch and weighs nothing. So the law of what is drawn is
that of one memory, whatever the shards are (`sharded.py`). It holds steps that came in blocks until it is told to
store them, a vector step at a time (`afar.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from duetto.memory.afar import Arrived
from duetto.memory.base import Experience, Found, selected
from duetto.memory.draws import Line, ProportionalDraws
from duetto.memory.episodes import BrokenEpisodeError
from duetto.memory.kinds import Recipe
from duetto.memory.prioritized import PrioritizedReplay
from duetto.memory.sequences import SequenceReplay


class Standing(NamedTuple):
    """The state of a shard, in numbers, after a request."""

    written: np.ndarray  # (its environments,) int64
    line: Line
    largest: float  # |δ| that it knows of; 0 where all items are alike
    missing: tuple[int, ...] = ()  # of the blocks that it was to hold, those whose rows are no more


class Block(NamedTuple):
    """The sizes of a block that a shard gets."""

    share: range  # the environments that it has rows of
    counts: list[int]  # rows of each vector step


class Shard:
    """The memory of a share of the environments, which it counts from 0, except in errors."""

    def __init__(self, recipe: Recipe, share: range) -> None:
        # What it would draw with is never drawn with.
        self._memory, self._first = recipe.make(len(share), np.random.default_rng(0)), share.start
        self._share, self._stacks, self._arrived = share, recipe.stacks(), dict[int, Arrived]()
        kept = self._memory
        draws = kept.draws if isinstance(kept, PrioritizedReplay | SequenceReplay) else None
        self._draws = draws if isinstance(draws, ProportionalDraws) else None

    def standing(self) -> Standing:
        """See Standing."""
        largest = 0.0 if self._draws is None else self._draws.largest
        return Standing(self._memory.written, self._memory.line, largest)

    def add(self, experience: Experience, largest: float) -> Standing:
        """Store steps; new items get the largest |δ| of all shards."""
        self._raise(largest)
        try:
            self._memory.add(experience)
        except BrokenEpisodeError as error:
            raise BrokenEpisodeError(error.name, error.env + self._first) from error
        return self.standing()

    def hold(
        self,
        number: int,
        begin: int,
        blocks: Sequence[Block],
        extras: Sequence[str],
        largest: float,
        *values: Experience | None,
    ) -> Standing:
        """Hold a parcel's rows, from the vector step `begin` on, until they are taken.

        Values of None are blocks whose rows are lost; their environments begin new episodes.
        """
        found = []
        for block, value in zip(blocks, values, strict=True):
            if value is not None:
                found.append(self._own(value._replace(extras={name: value.extras[name] for name in extras}), block))
        self._arrived[number] = Arrived(found, begin, len(blocks[0].counts))
        missing = tuple(index for index, value in enumerate(values) if value is None)
        if missing:
            gone = [any(env in blocks[index].share for index in missing) for env in self._share]
            self.interrupt(np.array(gone), largest)
        return self.standing()._replace(missing=missing)

    def _own(self, steps: Experience, block: Block) -> tuple[Experience, list[int]]:
        """Return the rows of the shard's own environments, and how many each vector step has."""
        if self._stacks is not None:
            self._stacks.check_steps(steps)
        if block.share.start >= self._share.start and block.share.stop <= self._share.stop:
            return steps, block.counts
        own = (steps.env >= self._share.start) & (steps.env < self._share.stop)
        step = np.arange(len(block.counts)).repeat(block.counts)
        counts = np.bincount(step[own], minlength=len(block.counts)).tolist()
        return selected(steps, np.flatnonzero(own)), counts

    def take(self, number: int, step: int, largest: float) -> Standing:
        """Store a vector step of a parcel that it holds; new items get the largest |δ| of all shards."""
        arrived = self._arrived[number]
        found = arrived.take(step)
        if arrived.used_up:
            del self._arrived[number]
        if found is None:
            return self.standing()
        return self.add(found._replace(env=found.env - self._first), largest)

    def interrupt(self, envs: np.ndarray | None, largest: float) -> Standing:
        """See `Replay.interrupt`; items that this completes get the largest |δ| of all shards."""
        self._raise(largest)
        self._memory.interrupt(envs)
        return self.standing()

    def resolve(self, point: np.ndarray) -> Found:
        """Return the items at points (B,) of the shard's own line."""
        return self._memory.resolve(point)

    def prioritize(self, index: np.ndarray, stamp: np.ndarray, priority: np.ndarray) -> Standing:
        """Give items (B,) new priorities, where they are still there."""
        self._memory.prioritize(index, stamp, priority)
        return self.standing()

    def state_dict(self) -> dict[str, Any]:
        """Return its memory's state, in which random generator, schedule and counts of batches mean nothing."""
        return self._memory.state_dict()

    def segment(self, since: np.ndarray) -> dict[str, np.ndarray] | None:
        """See `Replay.segment`."""
        return self._memory.segment(since)

    def load_state_dict(self, state: dict[str, Any]) -> Standing:
        """Restore what `state_dict` returned."""
        self._memory.load_state_dict(state)
        return self.standing()

    def load_segment(self, segment: dict[str, np.ndarray]) -> Standing:
        """See `Replay.load_segment`."""
        self._memory.load_segment(segment)
        return self.standing()

    def _raise(self, largest: float) -> None:
        if self._draws is not None:
            self._draws.largest = largest


class Lost(NamedTuple):
    """The sign, instead of an answer, that a shard is gone and an empty one has taken its place."""

    what: str  # the beginning of a sentence: which one, and what became of it


Asked = tuple[str, tuple[Any, ...]]  # one of a shard's methods, and what it is given


class Shards(Protocol):
    """The interface to shards, wherever they live. Each is sent one message at a time; all work at the same time."""

    @property
    def shares(self) -> Sequence[range]:
        """The environments of each shard: contiguous, in order, and together all."""
        ...

    @property
    def notices(self) -> list[str]:
        """Messages for the user; append to it."""
        ...

    def begin(self, recipe: Recipe) -> list[Standing]:
        """Start new, empty shards in the place of any others, and return their standings."""
        ...

    def post(self, index: int, asked: Sequence[Asked], *values: Any) -> None:
        """Send a shard requests, to be done in this order, without waiting for the answers.

        `values` are further arguments of `hold`, which is asked once at most: each is an `Experience`, None, or stands
        for one that lies elsewhere.
        """
        ...

    def wait(self) -> dict[int, list[Any] | Lost]:
        """Return each shard's answers to what was posted, in order; `Lost` for a shard that was lost and replaced.

        Raises:
            PartLostError: A shard, or what it was to hold, is gone, and the run has to go back.
        """
        ...

    def close(self) -> None:
        """End the shards."""
        ...


class Kept(NamedTuple):
    """A memory's state and segments in a checkpoint."""

    state: dict[str, Any]
    segments: Iterator[dict[str, np.ndarray]]


class Elsewhere(NamedTuple):
    """The shards, and the checkpoint from which a lost one can be made again."""

    shards: Shards
    kept: Callable[[], Kept | None]  # of the newest checkpoint; None where there is none

    def within(self, part: Callable[[dict[str, Any]], dict[str, Any]]) -> Elsewhere:
        """Return the same shards for a memory whose state is `part` of the kept one."""

        def kept() -> Kept | None:
            whole = self.kept()
            return whole and whole._replace(state=part(whole.state))

        return self._replace(kept=kept)
