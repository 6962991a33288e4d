"""Where experience waits to be learned from: replay memories, uniform and prioritised."""

from __future__ import annotations

import numpy as np

from duetto.algorithms.base import ReplaySpec
from duetto.errors import UsageError
from duetto.memory.base import Experience, Sample
from duetto.memory.fields import transition_fields
from duetto.memory.prioritized import PrioritizedReplay
from duetto.memory.replay import Replay
from duetto.networks.spaces import Space

__all__ = ["Experience", "PrioritizedReplay", "Replay", "Sample", "build"]


def build(
    spec: ReplaySpec, observation_space: Space, action_space: Space, num_envs: int, random: np.random.Generator
) -> Replay:
    """The replay memory that `spec` describes; it draws from `random`, which nothing else should use.

    The capacity is shared out among the environments evenly, rounded up.

    Raises:
        UsageError: numbers that make no memory, or a capacity that does not fit into this machine's memory.
    """
    _check(spec)
    fields = transition_fields(observation_space, action_space)
    rows = -(-spec.capacity // num_envs)
    try:
        if spec.prioritization is None:
            return Replay(spec, fields, num_envs, rows, random)
        return PrioritizedReplay(spec, spec.prioritization, fields, num_envs, rows, random)
    except MemoryError as error:
        needed = rows * num_envs * sum(field.nbytes for field in fields.values()) / 2**30
        raise UsageError(
            f"replay_capacity {spec.capacity} needs {needed:.1f} GiB of memory, which this machine does not have free. "
            "Lower replay_capacity."
        ) from error


def _check(spec: ReplaySpec) -> None:
    for name in ("capacity", "batch_size", "n_step", "train_every", "gradient_steps"):
        if getattr(spec, name) < 1:
            raise UsageError(f"{name} is {getattr(spec, name)}. Choose 1 or more.")
    if not spec.replacement and spec.batch_size > spec.capacity:
        raise UsageError(
            f"batch_size {spec.batch_size} cannot be drawn without replacement from replay_capacity {spec.capacity}. "
            "Raise replay_capacity, or set replacement."
        )
    if spec.prioritization is None:
        return
    if not spec.replacement:
        raise UsageError("Prioritised replay samples with replacement. Set replacement, or turn priorities off.")
    if not spec.prioritization.epsilon > 0:
        raise UsageError("The priority epsilon is 0, which would let transitions vanish. Choose a positive number.")
