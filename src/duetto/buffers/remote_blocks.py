"""Blocks of steps that go from actors to replay shards without passing through this process.

    actor          |  a block of T vector steps ------------------.
    this process   |  its header ........... | hand out 0 | hand out 1 | ... | forget it
    shard          |                         | fetch it, store 0 | store 1 | ... | drop it

A header contains the environments of a block's steps and the ends of episodes. Blocks that are handed out side by side
are one group; a shard stores the steps of its own environments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from duetto.buffers.base import Experience


class BlockHeader(NamedTuple):
    """Environments and episode ends of a block, without its arrays."""

    env: np.ndarray  # (R,) int64, the environment of each row
    ended: np.ndarray  # (T,) bool, an episode ends with the vector step
    extras: tuple[str, ...]  # names of the steps' extras

    @classmethod
    def of(cls, steps: Experience, counts: Sequence[int]) -> BlockHeader:
        """Return the header of vector steps with `counts` rows each."""
        ends = np.flatnonzero(steps.terminated | steps.truncated)
        ended = np.zeros(len(counts), bool)
        ended[np.cumsum(counts).searchsorted(ends, side="right")] = True
        return cls(steps.env, ended, tuple(steps.extras))


class BlockRef(NamedTuple):
    """A block in another process."""

    header: BlockHeader
    counts: list[int]  # rows of each vector step
    share: range  # the environments that it may have steps of
    value: Any  # a reference to its steps


class BlockGroup:
    """Blocks (at least one, of T vector steps each) that are handed out side by side."""

    def __init__(self, number: int, blocks: Sequence[BlockRef]) -> None:
        """`number` names the group; no two have the same."""
        self.number: int = number
        self.blocks: Sequence[BlockRef] = blocks
        self.steps: int = len(blocks[0].counts)

    @property
    def extras(self) -> list[str]:
        """Names of the extras that all its blocks have."""
        return [name for name in self.blocks[0].header.extras if all(name in b.header.extras for b in self.blocks)]

    def cut(self) -> list[RemoteBlock]:
        """Return one `RemoteBlock` for each of its vector steps, in order."""
        envs = [np.split(block.header.env, np.cumsum(block.counts)[:-1]) for block in self.blocks]
        ended = np.logical_or.reduce([block.header.ended for block in self.blocks])
        return [
            RemoteBlock(self, step, np.concatenate([env[step] for env in envs]), bool(ended[step]))
            for step in range(self.steps)
        ]


class RemoteBlock(NamedTuple):
    """K transitions of one vector step, in the place of an `Experience`."""

    group: BlockGroup
    step: int  # of the group
    env: np.ndarray  # (K,) int64, which environment each row comes from
    ended: bool  # an episode ends with one of them
