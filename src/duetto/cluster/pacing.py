"""The source of experience for each pace, and the length of blocks."""

from __future__ import annotations

from typing import Any, cast

from duetto.algorithms.base import RolloutSpec
from duetto.cluster.blocks import Blocks, Distant
from duetto.cluster.free import Free
from duetto.cluster.lockstep import Lockstep
from duetto.cluster.options import BLOCK, BLOCK_BYTES, Cluster
from duetto.cluster.spread import Spread
from duetto.environments import Stepper
from duetto.errors import UsageError
from duetto.learners import Acting, Learner
from duetto.learners.behind import Behind
from duetto.memory.fields import transition_fields
from duetto.storage.config import Config
from duetto.training.collector import Collector, Source
from duetto.training.normalizer import Normalizer


def source(cluster: Cluster, config: Config, stepper: Stepper, learner: Acting, normalizer: Normalizer) -> Source:
    """See `Place.make_source`.

    Raises:
        UsageError: A block would be too large, `ahead` is less than one block, or `learner` acts behind itself already.
    """
    if not isinstance(stepper, Distant):
        return Collector(config.algorithm, stepper, learner, normalizer, config.run.seed)
    if isinstance(learner, Behind):
        raise UsageError(
            f"With the pace {cluster.pace} actors act with older parameters anyway, while others are learned. Leave "
            "out act_behind (--act-behind), or use the pace exact."
        )
    engine, trained = stepper.engine, cast(Learner, learner)
    assert isinstance(engine, Spread)
    most = max(len(actor.share) for actor in engine.crew.actors)
    steps = _length(cluster.block, config, stepper, learner, most)
    kind: type[Blocks] = Lockstep if cluster.pace == "lockstep" else Free
    blocks = kind(engine.crew, config.algorithm, steps, stepper, trained, normalizer)
    blocks.leave = cluster.replay_shards > 0
    if normalizer.mode == "rollouts" and normalizer.moments:
        engine.crew.notices.append(
            f"With the pace {cluster.pace} a rollout is acted with statistics of observations that are older than "
            "those it is learned with. With observation_statistics=steps (--observation-statistics steps) it is "
            "learned from as it was acted on; or use the pace exact."
        )
    if isinstance(blocks, Free):
        blocks.ahead = cluster.ahead or 2 * steps * stepper.num_envs
        if blocks.ahead < steps * most:
            raise UsageError(
                f"ahead is {blocks.ahead}, but a block has {steps * most} steps, so nobody could begin one. Raise it, "
                "or lower block."
            )
    return blocks


def _length(wanted: int, config: Config, stepper: Stepper, learner: Acting, environments: int) -> int:
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


def decided(stepper: Stepper) -> dict[str, Any]:
    """See `Place.decided`."""
    if not isinstance(stepper, Distant):
        return {}
    source = stepper.source
    own = {"actors": source.actors} if isinstance(source, Lockstep) else {}
    return {"pace": source.pace, **own, "block": source.length}
