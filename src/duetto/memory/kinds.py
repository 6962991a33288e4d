"""A replay memory of either kind, in this process, and the sentence for one that does not fit into it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from duetto.algorithms.base import ReplaySpec, SequenceSpec
from duetto.errors import UsageError
from duetto.memory.episodes import row_fields
from duetto.memory.fields import Field, compressed, transition_fields
from duetto.memory.frames import Stacks
from duetto.memory.hindsight import Goals
from duetto.memory.prioritized import PrioritizedReplay
from duetto.memory.replay import Replay
from duetto.memory.sequences import SequenceReplay
from duetto.networks.spaces import Space


def rows_of(spec: ReplaySpec | SequenceSpec, num_envs: int) -> int:
    """Each environment's share of the capacity, rounded up."""
    return -(-spec.capacity // num_envs)


class Recipe(NamedTuple):
    """The arguments that a replay memory of either kind is made from."""

    spec: ReplaySpec | SequenceSpec
    observation: Space
    action: Space
    rows: int  # of each environment
    stacked: int

    def make(self, num_envs: int, random: np.random.Generator, goals: Goals | None = None) -> Replay | SequenceReplay:
        """Make the memory of `num_envs` environments, in this process. UsageError where it does not fit."""
        spec, observation, action, rows, stacked = self
        fields = self._of_a_row()
        try:
            if isinstance(spec, SequenceSpec):
                return SequenceReplay(spec, observation, action, num_envs, rows, random, stacked)
            if spec.prioritization is None:
                return Replay(spec, fields, num_envs, rows, random, goals)
            return PrioritizedReplay(spec, spec.prioritization, fields, num_envs, rows, random, goals)
        except MemoryError as error:
            what, hint = f"replay_capacity {spec.capacity}", "Lower replay_capacity."
            raise too_large(what, hint, fields, rows * num_envs) from error

    def stacks(self) -> Stacks | None:
        """Return the check of stacked frames in a memory of sequences; None for all other memories."""
        stacked = self.stacked if isinstance(self.spec, SequenceSpec) else 1
        return Stacks(self.observation, stacked) if stacked > 1 else None

    def _of_a_row(self) -> dict[str, Field]:
        """Return the fields of one row."""
        if isinstance(self.spec, SequenceSpec):
            return row_fields(self.observation, self.action, self.stacked)
        fields = transition_fields(self.observation, self.action)
        return compressed(fields) if self.spec.compress else fields


def too_large(what: str, hint: str, fields: dict[str, Field], count: int) -> UsageError:
    """Return the error for `count` rows of these fields, which do not fit into memory."""
    needed = count * sum(field.nbytes for field in fields.values()) / 2**30
    return UsageError(f"{what} needs {needed:.1f} GiB of memory, which this machine does not have free. {hint}")
