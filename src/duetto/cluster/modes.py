"""The source of experience for each mode, and the length of blocks."""

from __future__ import annotations

from typing import Any, cast

from duetto.algorithms.base import RolloutSpec
from duetto.buffers.storage_fields import transition_fields
from duetto.cluster.asynchronous import Async
from duetto.cluster.block_source import Blocks, Distant
from duetto.cluster.config import BLOCK, BLOCK_BYTES, Cluster
from duetto.cluster.spread import Spread
from duetto.cluster.sync import Sync
from duetto.environments import VecEnv
from duetto.errors import UsageError
from duetto.learners import Learner, Policy
from duetto.storage.config import Config
from duetto.training.normalizer import Normalizer


def source(cluster: Cluster, config: Config, stepper: VecEnv, learner: Policy, normalizer: Normalizer) -> Blocks:
    """See `Execution.make_source`.

    Raises:
        UsageError: A block would be too large, or `ahead` is less than one block.
    """
    assert isinstance(stepper, Distant)
    engine, trained = stepper.engine, cast(Learner, learner)
    assert isinstance(engine, Spread)
    most = max(len(actor.share) for actor in engine.crew.actors)
    steps = _length(cluster.block, config, stepper, learner, most)
    kind: type[Blocks] = Sync if cluster.mode == "sync" else Async
    blocks = kind(engine.crew, config.algorithm, steps, stepper, trained, normalizer)
    blocks.leave = cluster.replay_shards > 0
    if normalizer.mode == "rollouts" and normalizer.moments:
        engine.crew.notices.append(
            "On a cluster the observation statistics that actors use are older than those that a rollout is learned "
            "with. Set observation_statistics=steps (--observation-statistics steps) to learn with those of the actors."
        )
    if isinstance(blocks, Async):
        blocks.ahead = cluster.ahead or 2 * steps * stepper.num_envs
        if blocks.ahead < steps * most:
            raise UsageError(
                f"ahead is {blocks.ahead}, but a block has {steps * most} steps, so nobody could begin one. Raise it, "
                "or lower block."
            )
    return blocks


def _length(wanted: int, config: Config, stepper: VecEnv, learner: Policy, environments: int) -> int:
    """Vector steps of a block that has so many environments. UsageError if `wanted` makes it larger than 8 MB."""
    fields = transition_fields(stepper.observation_space, stepper.action_space).values()
    carry = sum(4 * rows * size for rows, size in learner.carry_shapes().values())
    room = max(1, BLOCK_BYTES // (environments * (sum(field.nbytes for field in fields) + 2 * carry)))
    if wanted > room:
        raise UsageError(f"A block of {wanted} vector steps is larger than 8 MB. Use a block of {room} at most.")
    memory = config.algorithm.memory()
    if wanted or not isinstance(memory, RolloutSpec):
        return wanted or min(room, BLOCK)
    return max(length for length in range(1, min(room, memory.steps) + 1) if memory.steps % length == 0)


def decided(stepper: VecEnv) -> dict[str, Any]:
    """See `Execution.decided`."""
    assert isinstance(stepper, Distant)
    source = stepper.source
    own = {"actors": source.actors} if isinstance(source, Sync) else {}
    return {"mode": source.mode, **own, "block": source.length}
