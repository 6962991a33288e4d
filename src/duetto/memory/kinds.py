"""A replay memory of either kind, in this process, and the sentence for one that does not fit into it."""

from __future__ import annotations

import numpy as np

from duetto.algorithms.base import ReplaySpec, SequenceSpec
from duetto.errors import UsageError
from duetto.memory.episodes import row_fields
from duetto.memory.fields import Field, compressed, transition_fields
from duetto.memory.hindsight import Goals
from duetto.memory.prioritized import PrioritizedReplay
from duetto.memory.replay import Replay
from duetto.memory.sequences import SequenceReplay
from duetto.networks.spaces import Space


def rows_of(spec: ReplaySpec | SequenceSpec, num_envs: int) -> int:
    """Each environment's share of the capacity, rounded up."""
    return -(-spec.capacity // num_envs)


def transitions(
    spec: ReplaySpec,
    observation: Space,
    action: Space,
    num_envs: int,
    rows: int,
    random: np.random.Generator,
    goals: Goals | None = None,
) -> Replay:
    """A memory of transitions, uniform or prioritised."""
    fields = transition_fields(observation, action)
    fields = compressed(fields) if spec.compress else fields
    try:
        if spec.prioritization is None:
            return Replay(spec, fields, num_envs, rows, random, goals)
        return PrioritizedReplay(spec, spec.prioritization, fields, num_envs, rows, random, goals)
    except MemoryError as error:
        raise _no_room(spec, fields, rows * num_envs) from error


def sequences(
    spec: SequenceSpec,
    observation: Space,
    action: Space,
    num_envs: int,
    rows: int,
    random: np.random.Generator,
    stacked: int,
) -> SequenceReplay:
    """A memory of sequences."""
    try:
        return SequenceReplay(spec, observation, action, num_envs, rows, random, stacked)
    except MemoryError as error:
        raise _no_room(spec, row_fields(observation, action, stacked), rows * num_envs) from error


def _no_room(spec: ReplaySpec | SequenceSpec, fields: dict[str, Field], count: int) -> UsageError:
    return too_large(f"replay_capacity {spec.capacity}", "Lower replay_capacity.", fields, count)


def too_large(what: str, hint: str, fields: dict[str, Field], count: int) -> UsageError:
    """The error for so many rows of these fields."""
    needed = count * sum(field.nbytes for field in fields.values()) / 2**30
    return UsageError(f"{what} needs {needed:.1f} GiB of memory, which this machine does not have free. {hint}")
