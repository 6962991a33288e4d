"""Memories, in which experience waits to be learned from: rollouts, and replay of transitions and of sequences."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from duetto.algorithms.base import MemorySpec, Prioritization, ReplaySpec, RolloutSpec, SequenceSpec, Tree
from duetto.errors import UsageError
from duetto.memory.afar import Afar, Left, Outline, Parcel
from duetto.memory.base import Experience, Sample
from duetto.memory.demonstrations import Episodes, fill, own_spec, rows_for
from duetto.memory.fields import step_fields
from duetto.memory.hindsight import Goals
from duetto.memory.kinds import Recipe, rows_of, too_large
from duetto.memory.mixed import Mixed
from duetto.memory.prioritized import PrioritizedReplay
from duetto.memory.recurrent_rollout import RecurrentRollout
from duetto.memory.replay import Replay
from duetto.memory.rollout import Rollout
from duetto.memory.sequences import SequenceReplay
from duetto.memory.sharded import Sharded
from duetto.memory.shards import Asked, Elsewhere, Kept, Lost, Shard, Shards
from duetto.memory.whole import LeftOut
from duetto.networks.spaces import Space

__all__ = [
    "Afar",
    "Asked",
    "Elsewhere",
    "Episodes",
    "Experience",
    "Goals",
    "Kept",
    "Left",
    "LeftOut",
    "Lost",
    "Mixed",
    "Outline",
    "Parcel",
    "PrioritizedReplay",
    "Recipe",
    "Replay",
    "Rollout",
    "Sample",
    "SequenceReplay",
    "Shard",
    "Sharded",
    "Shards",
    "build",
]


def build(
    spec: MemorySpec,
    observation_space: Space,
    action_space: Space,
    num_envs: int,
    random: np.random.Generator,
    value: Callable[[Tree], np.ndarray] | None = None,
    stacked: int = 1,
    demonstrations: Episodes | None = None,
    goals: Goals | None = None,
    elsewhere: Elsewhere | None = None,
) -> Replay | Rollout | SequenceReplay | Mixed | Sharded:
    """The memory that `spec` describes; it draws from `random`, which nothing else should use.

    A replay memory's capacity is shared out among the environments evenly, rounded up. `value` gives V(s) (N,) of N
    observations, for rollouts. `stacked` says that images are stacks of so many frames, of which a memory of sequences
    keeps each frame once; 1 for images that are none. `demonstrations` are mixed in where the spec says how. `goals`
    says what other goals would have brought, where the spec wants hindsight. With `elsewhere` a replay memory lies in
    its shards.

    Raises:
        UsageError: numbers that make no memory, or a capacity that does not fit into this machine's memory.
    """
    if isinstance(spec, RolloutSpec):
        assert value is not None
        return _rollout(spec, observation_space, action_space, num_envs, value)
    if demonstrations is not None:
        return _mixed(spec, observation_space, action_space, num_envs, random, stacked, demonstrations, elsewhere)
    _check_sequences(spec) if isinstance(spec, SequenceSpec) else _check(spec)
    recipe = Recipe(spec, observation_space, action_space, rows_of(spec, num_envs), stacked)
    if elsewhere is not None:
        assert goals is None, "hindsight in shards"
        return Sharded(recipe, num_envs, random, elsewhere)
    return recipe.make(num_envs, random, goals)


def _mixed(
    spec: ReplaySpec | SequenceSpec,
    observation: Space,
    action: Space,
    num_envs: int,
    random: np.random.Generator,
    stacked: int,
    demonstrations: Episodes,
    elsewhere: Elsewhere | None,
) -> Mixed:
    mixing = spec.demonstrations
    assert mixing is not None
    if mixing.by_priority and spec.prioritization is None:
        raise UsageError("Demonstrations can have the share of their priorities only in a prioritised memory.")
    if isinstance(spec, ReplaySpec) and not spec.replacement:
        raise UsageError("Demonstrations are drawn with replacement: there may be fewer than a batch holds. Set it.")
    lengths = demonstrations.lengths or [len(episode.reward) for episode in demonstrations.episodes]
    rows = rows_for(spec, lengths, stacked)
    own = own_spec(spec, mixing, rows)
    agents = elsewhere and elsewhere.within(Mixed.agents)
    agent = build(spec, observation, action, num_envs, random, stacked=stacked, elsewhere=agents)
    experts = build(own, observation, action, 1, demonstrations.own_random, stacked=stacked)
    assert not isinstance(agent, Rollout | Mixed)
    assert isinstance(experts, Replay | SequenceReplay)
    fingerprint = fill(experts, demonstrations.episodes)
    if not len(experts):
        raise UsageError("No demonstration has anything to learn from: all are shorter than the burn-in.")
    return Mixed(mixing, spec.batch_size, agent, experts, fingerprint, demonstrations.random)


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
        raise too_large(f"A rollout of {steps} steps", "Lower rollout_steps.", fields, steps) from error


def check(spec: MemorySpec, num_envs: int) -> None:
    """Raise UsageError where the rollouts of so many environments cannot be cut into minibatches."""
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
    _check_epsilon(spec.prioritization)


def _check_sequences(spec: SequenceSpec) -> None:
    for name in ("capacity", "batch_size", "unroll", "n_step", "train_every", "gradient_steps"):
        if getattr(spec, name) < 1:
            raise UsageError(f"{name} is {getattr(spec, name)}. Choose 1 or more.")
    if spec.burn_in < 0:
        raise UsageError(f"burn_in is {spec.burn_in}. Choose 0 or more.")
    if not spec.burn_in <= spec.overlap < spec.burn_in + spec.unroll:
        raise UsageError(
            f"overlap is {spec.overlap}. Choose at least burn_in, {spec.burn_in}, because steps would never be learned "
            f"from otherwise, and less than burn_in + unroll, {spec.burn_in + spec.unroll}."
        )
    if not 0 <= spec.priority_mix <= 1:
        raise UsageError(f"priority_mix is {spec.priority_mix}. Choose a number from 0 to 1.")
    if spec.prioritization is not None:
        _check_epsilon(spec.prioritization)


def _check_epsilon(prioritization: Prioritization) -> None:
    if not prioritization.epsilon > 0:
        raise UsageError("priority_epsilon is 0: what has no error would never be drawn again. Choose more.")
