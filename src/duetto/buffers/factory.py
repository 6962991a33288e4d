"""Make a replay buffer of transitions or of sequences in this process."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from duetto.algorithms.base import ReplaySpec, SequenceSpec
from duetto.buffers.her import HindsightGoals
from duetto.buffers.replay import Replay
from duetto.buffers.sequences import SequenceReplay
from duetto.buffers.storage import EpisodeStorage
from duetto.buffers.storage_fields import Field, stored_fields
from duetto.errors import UsageError
from duetto.networks.spaces import Space


def rows_of(spec: ReplaySpec | SequenceSpec, num_envs: int) -> int:
    """Return each environment's share of the capacity, rounded up."""
    return -(-spec.capacity // num_envs)


class ReplayFactory(NamedTuple):
    """The arguments of a replay buffer of transitions or of sequences."""

    spec: ReplaySpec | SequenceSpec
    observation: Space
    action: Space
    rows: int  # of each environment
    stacked: int

    def make(
        self, num_envs: int, random: np.random.Generator, goals: HindsightGoals | None = None, first_env: int = 0
    ) -> Replay:
        """Make the buffer of `num_envs` environments. UsageError if it does not fit into memory."""
        spec, observation, action, rows, stacked = self
        try:
            storage = EpisodeStorage(observation, action, num_envs, rows, stacked, first_env)
            if isinstance(spec, SequenceSpec):
                return SequenceReplay(spec, storage, random)
            return Replay(spec, storage, random, goals)
        except MemoryError as error:
            what, hint = f"replay_capacity {spec.capacity}", "Lower replay_capacity."
            raise too_large(what, hint, stored_fields(observation, action, stacked), rows * num_envs) from error


def too_large(what: str, hint: str, fields: dict[str, Field], count: int) -> UsageError:
    """Return the error for `count` rows of these fields, which do not fit into memory."""
    needed = count * sum(field.nbytes for field in fields.values()) / 2**30
    return UsageError(f"{what} needs {needed:.1f} GiB of memory, which this machine does not have free. {hint}")
