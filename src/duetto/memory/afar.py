"""Steps that lie elsewhere, in blocks that go from whoever made them to the shards of a memory, and not through here.

    who made it    |  a block of T vector steps ------------------.
    here           |  its outline .......... | hand out 0 | hand out 1 | ... | forget it
    a shard        |                         | fetch it, store 0 | store 1 | ... | drop it

An outline is all that whoever hands them out knows of them: whose each row is, and with which vector steps episodes
end. Blocks that are handed out side by side are one parcel; a shard takes what is its environments' of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from duetto.memory.base import Experience
from duetto.memory.steps import cut, joined


class Outline(NamedTuple):
    """The facts about a block that are known without its rows."""

    env: np.ndarray  # (R,) int64, whose each is
    ended: np.ndarray  # (T,) bool, whether an episode ends with a vector step
    extras: tuple[str, ...]  # names of what the algorithm gave with its actions

    @classmethod
    def of(cls, steps: Experience, counts: Sequence[int]) -> Outline:
        """Return the outline of vector steps with `counts` rows each."""
        ends = np.flatnonzero(steps.terminated | steps.truncated)
        ended = np.zeros(len(counts), bool)
        ended[np.cumsum(counts).searchsorted(ends, side="right")] = True
        return cls(steps.env, ended, tuple(steps.extras))


class Left(NamedTuple):
    """A block whose rows lie elsewhere."""

    outline: Outline
    counts: list[int]  # rows of each vector step
    share: range  # the environments that it may have rows of
    value: Any  # what stands for its rows


class Parcel:
    """Blocks (at least one, of T vector steps each) that are handed out side by side."""

    def __init__(self, number: int, blocks: Sequence[Left]) -> None:
        """`number` names the parcel; no two have the same."""
        self.number: int = number
        self.blocks: Sequence[Left] = blocks
        self.steps: int = len(blocks[0].counts)

    @property
    def extras(self) -> list[str]:
        """Names of the extras that all of its blocks have."""
        return [name for name in self.blocks[0].outline.extras if all(name in b.outline.extras for b in self.blocks)]

    def cut(self) -> list[Afar]:
        """Return one `Afar` for each of its vector steps, in order."""
        envs = [np.split(block.outline.env, np.cumsum(block.counts)[:-1]) for block in self.blocks]
        ended = np.logical_or.reduce([block.outline.ended for block in self.blocks])
        return [
            Afar(self, step, np.concatenate([env[step] for env in envs]), bool(ended[step]))
            for step in range(self.steps)
        ]


class Afar(NamedTuple):
    """K transitions of one vector step, in the place of an `Experience`."""

    parcel: Parcel
    step: int  # of the parcel
    env: np.ndarray  # (K,) int64, which environment each row comes from
    ended: bool  # whether an episode ends with one of them


class Arrived:
    """A parcel in a shard, as far as its rows are the shard's own."""

    def __init__(self, blocks: Sequence[tuple[Experience, list[int]]], begin: int, steps: int) -> None:
        """`blocks` have their rows and the number of rows of each vector step; steps before `begin` are never taken."""
        self._blocks = [cut(*block) for block in blocks]
        self._next, self._steps = begin, steps

    def take(self, step: int) -> Experience | None:
        """The rows of this vector step, of which each is asked for once, in order; None where there are none."""
        if step != self._next:
            raise RuntimeError(f"vector step {step} of a block is asked for, where {self._next} is the next")
        self._next += 1
        found = [block[step] for block in self._blocks if len(block[step].env)]
        return joined(found) if found else None

    @property
    def used_up(self) -> bool:
        """Whether every vector step was taken."""
        return self._next == self._steps
