"""Rollouts and replay buffers.

A plain TD3 run uses these files:

- `base`: the steps that a buffer stores, the batches that it returns, the interface of all buffers
- `replay`: batches of transitions
- `episode_storage`: the newest steps of every environment, with each observation stored once; shapes and dtypes
- `sampling`: uniform and prioritized draws (sum tree), importance weights (formulas: `functional.priorities`)
- `update_schedule`: when to update, and how often

An *item* of a batch is a transition or, for recurrent networks, a sequence. The other files:

- `sequences`: batches of sequences, for recurrent networks
- `her`: hindsight experience replay: new goals in a batch
- `mixed_replay`: batches that mix the agent's experience with demonstrations; priorities of demonstrations
- `rollout`: on-policy batches
- `sharded_replay`: a replay buffer in several processes; `ReplayFactory`, which makes every replay buffer
- `device_replay`: a replay buffer on the accelerator, for the compiled training loop
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from duetto.algorithms.base import MemorySpec, RolloutSpec, Tree
from duetto.buffers.base import Experience as Experience
from duetto.buffers.episode_storage import step_fields, too_large
from duetto.buffers.her import HindsightGoals
from duetto.buffers.mixed_replay import Episodes, MixedReplay
from duetto.buffers.replay import Replay
from duetto.buffers.rollout import RecurrentRollout, Rollout
from duetto.buffers.sharded_replay import ReplayFactory, ShardedReplay, Shards
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
        spec: The kind and the sizes of the buffer. Each environment gets an equal share of a replay buffer's capacity,
            rounded up.
        observation_space: The space of one environment's observations.
        action_space: The space of one environment's actions.
        num_envs: N, the number of environments.
        random: The buffer's generator; nothing else may draw from it.
        value: The value function, which maps observations to their values. Only rollouts need it.
        stacked: The number of frames in each stacked image. A replay buffer stores each frame once.
        demonstrations: Episodes to mix into the batches; `spec.demonstrations` sets their share.
        goals: The functions of the goal environment that compute rewards and terminations, for HER.
        shards: Processes that store the replay buffer. By default this process stores it.

    Raises:
        UsageError: The sizes do not fit together, or the buffer does not fit into memory.
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
    """Raise UsageError if rollouts of `num_envs` environments have no equal minibatches of two or more steps."""
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
            f"With recurrent layers, a minibatch contains all steps of its environments, but {num_envs} environment(s) "
            f"cannot be cut into {spec.minibatches} equal parts. Change num_envs or minibatches."
        )
    if steps // spec.minibatches < 2:
        raise UsageError(
            f"{spec.minibatches} minibatches of {steps} steps have one step each. Choose fewer minibatches."
        )
