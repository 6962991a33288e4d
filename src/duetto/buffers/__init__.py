"""Rollouts and replay buffers.

- `storage`, `storage_fields`: the newest steps of every environment, each observation once
- `replay`, `sequences`: batches of transitions and of sequences
- `device_replay`: transitions as pure functions of arrays, for the compiled loop
- `sampling`: uniform and prioritized draws, importance weights (formulas: `functional.priorities`)
- `her`: hindsight experience replay
- `mixed_replay`: batches mixed with demonstrations
- `rollout`: on-policy batches
- `sharded_replay`: a buffer in several processes
- `update_schedule`: how many batches are due
- `base`: the data that goes in and out, joined and split
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from duetto.algorithms.base import MemorySpec, RolloutSpec, Tree
from duetto.buffers.base import Experience as Experience
from duetto.buffers.her import HindsightGoals
from duetto.buffers.mixed_replay import Episodes, MixedReplay
from duetto.buffers.replay import Replay
from duetto.buffers.rollout import RecurrentRollout, Rollout
from duetto.buffers.sharded_replay import ReplayFactory, ShardedReplay, Shards
from duetto.buffers.storage_fields import step_fields, too_large
from duetto.errors import UsageError
from duetto.networks.spaces import Space


def build(
    spec: MemorySpec,
    observation_space: Space,
    action_space: Space,
    num_envs: int,
    random: np.random.Generator,
    value: Callable[[Tree], np.ndarray] | None = None,
    stacked: int = 1,
    demonstrations: Episodes | None = None,
    goals: HindsightGoals | None = None,
    shards: Shards | None = None,
) -> Replay | Rollout | MixedReplay | ShardedReplay:
    """Make the buffer that `spec` describes.

    Args:
        spec: Its kind and sizes. Each environment gets an equal share of a replay buffer's capacity, rounded up.
        observation_space: Of one environment.
        action_space: Of one environment.
        num_envs: N.
        random: The buffer's generator; nothing else may draw from it.
        value: For rollouts, V(s) (N,) of N observations.
        stacked: Frames that each image is a stack of. A replay buffer stores each frame once.
        demonstrations: Mixed into batches as the spec says.
        goals: The reward function of a goal environment, for HER.
        shards: The processes that store a replay buffer; without them it is in this process.

    Raises:
        UsageError: Sizes that make no buffer, or a capacity that does not fit into this machine's memory.
    """
    if isinstance(spec, RolloutSpec):
        assert value is not None
        return _rollout(spec, observation_space, action_space, num_envs, value)
    factory = ReplayFactory(spec, observation_space, action_space, -(-spec.capacity // num_envs), stacked)
    if shards is not None:
        agent = ShardedReplay(factory, num_envs, random, shards)
    else:
        agent = factory.make(num_envs, random, goals)
    return agent if demonstrations is None else MixedReplay(factory, agent, demonstrations)


def _rollout(
    spec: RolloutSpec, observation: Space, action: Space, num_envs: int, value: Callable[[Tree], np.ndarray]
) -> Rollout:
    steps = spec.steps * num_envs
    check(spec, num_envs)
    fields = step_fields(observation, action, spec.recurrent)
    try:
        kind = RecurrentRollout if spec.recurrent else Rollout
        return kind(spec, fields, num_envs, value)
    except MemoryError as error:
        raise too_large(f"A rollout of {steps} steps", "Lower rollout_steps.", fields.values(), steps) from error


def check(spec: MemorySpec, num_envs: int) -> None:
    """Raise UsageError if the rollouts of so many environments cannot be split into equal minibatches."""
    if not isinstance(spec, RolloutSpec):
        return
    steps = spec.steps * num_envs
    if steps % spec.minibatches:
        raise UsageError(
            f"A rollout of {spec.steps} steps in {num_envs} environment(s) has {steps} steps, which cannot be cut into "
            f"{spec.minibatches} equal minibatches. Change rollout_steps, num_envs or minibatches."
        )
    if spec.recurrent and num_envs % spec.minibatches:
        raise UsageError(
            f"With recurrent layers a minibatch is made of whole environments; {num_envs} environment(s) cannot be cut "
            f"into {spec.minibatches} equal parts. Change num_envs or minibatches."
        )
    if steps // spec.minibatches < 2:
        raise UsageError(
            f"{spec.minibatches} minibatches of {steps} steps have one step each. Choose fewer minibatches."
        )
