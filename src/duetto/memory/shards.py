"""Parts of one replay memory, each with some of the environments, in whichever process.

    whoever draws    points of the whole line ........... | weights | learns | new priorities, new steps
    shard 0          |  what lies at those that are its own                  |  keeps them
    shard 1          |  what lies at those that are its own                  |  keeps them

A shard decides nothing: it draws no random number, counts no batch and weighs nothing. So the law of what is drawn is
that of one memory, whatever the shards are (`sharded.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from duetto.memory.base import Experience, Found
from duetto.memory.draws import Line, ProportionalDraws
from duetto.memory.episodes import BrokenEpisodeError
from duetto.memory.kinds import Recipe
from duetto.memory.prioritized import PrioritizedReplay
from duetto.memory.sequences import SequenceReplay


class Standing(NamedTuple):
    """How a shard stands after what it was asked."""

    written: np.ndarray  # (its environments,) int64
    line: Line
    largest: float  # |δ| that it knows of; 0 where all items are alike


class Shard:
    """The memory of a share of the environments, which it counts from 0, but in what it says."""

    def __init__(self, recipe: Recipe, share: range) -> None:
        # What it would draw with is never drawn with.
        self._memory, self._first = recipe.make(len(share), np.random.default_rng(0)), share.start
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

    def interrupt(self, envs: np.ndarray | None, largest: float) -> Standing:
        """See `Replay.interrupt`; items that this completes get the largest |δ| of all shards."""
        self._raise(largest)
        self._memory.interrupt(envs)
        return self.standing()

    def resolve(self, point: np.ndarray) -> Found:
        """What lies at points (B,) of its own line."""
        return self._memory.resolve(point)

    def prioritize(self, index: np.ndarray, stamp: np.ndarray, priority: np.ndarray) -> Standing:
        """Give items (B,) new priorities, where they are still there."""
        self._memory.prioritize(index, stamp, priority)
        return self.standing()

    def state_dict(self) -> dict[str, Any]:
        """That of its memory, in which random numbers, schedule and counts of batches mean nothing."""
        return self._memory.state_dict()

    def segment(self, since: np.ndarray) -> dict[str, np.ndarray] | None:
        """See `Replay.segment`."""
        return self._memory.segment(since)

    def load_state_dict(self, state: dict[str, Any]) -> Standing:
        """Undo `state_dict`."""
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
    """Instead of an answer: a shard is gone, and another one, in which nothing is, has its place."""

    what: str  # the beginning of a sentence: which one, and what became of it


class Shards(Protocol):
    """Where shards live. Each is asked one thing at a time; they do it at the same time."""

    @property
    def shares(self) -> Sequence[range]:
        """The environments of each: contiguous, in order, and all of them."""
        ...

    @property
    def notices(self) -> list[str]:
        """Sentences for the user."""
        ...

    def begin(self, recipe: Recipe) -> list[Standing]:
        """New ones, in which nothing is, instead of any others."""
        ...

    def post(self, index: int, method: str, *arguments: Any) -> None:
        """Ask a shard, and wait for nobody."""
        ...

    def wait(self) -> dict[int, Any]:
        """What the shards gave to what was posted; or, where that is possible, `Lost`.

        Raises:
            PartLostError: A shard is gone, and the run has to go back.
        """
        ...

    def close(self) -> None:
        """End them."""
        ...


class Kept(NamedTuple):
    """What a checkpoint holds of a memory."""

    state: dict[str, Any]
    segments: Iterator[dict[str, np.ndarray]]


class Elsewhere(NamedTuple):
    """Shards, and what one that is lost may be made of again."""

    shards: Shards
    kept: Callable[[], Kept | None]  # of the newest checkpoint; None where there is none

    def within(self, part: Callable[[dict[str, Any]], dict[str, Any]]) -> Elsewhere:
        """The same for a memory whose state is this part of what is kept."""

        def kept() -> Kept | None:
            whole = self.kept()
            return whole and whole._replace(state=part(whole.state))

        return self._replace(kept=kept)
