"""Make the parts of a run on a cluster: environments, a source of experience, and replay shards."""

from __future__ import annotations

from typing import Any, cast

import cloudpickle

from duetto.algorithms.base import RolloutSpec
from duetto.buffers.storage_fields import transition_fields
from duetto.cluster.actor import ActorRole
from duetto.cluster.actor_pool import ActorPool
from duetto.cluster.asynchronous import AsyncSource
from duetto.cluster.block_source import BlockSource
from duetto.cluster.config import BLOCK_BYTES, Cluster
from duetto.cluster.remote_engine import RemoteEngine
from duetto.cluster.shard_server import RemoteShards
from duetto.cluster.sync import SyncSource
from duetto.environments import VecEnv, is_instance, pickling
from duetto.environments.errors import EnvironmentFault, summary
from duetto.environments.sharding import shares
from duetto.errors import UsageError
from duetto.learners import Learner, Policy
from duetto.storage.config import Config
from duetto.training.normalizer import Normalizer

BLOCK = 16  # vector steps of a block, unless the config or a rollout decides


def make_stepper(
    cluster: Cluster, config: Config, environment: Any, notices: list[str], options: dict[str, Any]
) -> VecEnv:
    """Start actors, and return their environments; see `Execution.make_stepper`.

    Raises:
        UsageError: The environment is an instance, cannot be sent to another process, or does not fit; or the cluster
            has no room.
    """
    if is_instance(environment):
        raise UsageError(
            "An environment that is made already lives in this process. For a cluster, pass its id, or a factory that "
            "makes a new one at each call."
        )
    num_envs, wanted, run = options["num_envs"], cluster.actors or 2, config.run
    actors, shards = min(wanted, num_envs), min(cluster.replay_shards, num_envs)
    these = f"{num_envs} environment{'s' * (num_envs > 1)}"
    if actors < wanted:
        notices.append(f"{these} on {actors} of the {wanted} actors: the others would have none. Give more --num-envs.")
    if shards < cluster.replay_shards:
        notices.append(
            f"The replay memory of {these} is in {shards} of the {cluster.replay_shards} shards: the others would have "
            "none. Give more --num-envs."
        )
    recipe = _packed(environment, {name: value for name, value in options.items() if name != "num_envs"})
    role = cloudpickle.dumps(ActorRole(recipe, config.algorithm, run.backend, run.precision, run.threads, num_envs))
    transport = cluster.connect(actors + shards)
    pool = ActorPool(transport, role, shares(num_envs, actors), options["worker_timeout"], notices)
    try:
        engine = RemoteEngine(pool)
    except BaseException as error:
        pool.close()
        if isinstance(error, EnvironmentFault):
            raise error.told("The environments", 0) from error
        raise
    stepper = VecEnv(engine, engine.name)
    stepper.older = True
    return stepper


def make_shards(cluster: Cluster, stepper: VecEnv) -> RemoteShards | None:
    """Return replay shards in processes next to the actors of `stepper`; None if the cluster has none."""
    count = min(cluster.replay_shards, stepper.num_envs)
    return RemoteShards(_engine(stepper).pool, shares(stepper.num_envs, count)) if count else None


def make_source(
    cluster: Cluster, config: Config, stepper: VecEnv, learner: Policy, normalizer: Normalizer
) -> BlockSource:
    """Return the actors as a source of experience.

    Raises:
        UsageError: A block would be too large.
    """
    engine = _engine(stepper)
    envs = max(len(actor.share) for actor in engine.pool.actors)
    length = _block_length(cluster.block, config, stepper, learner, envs)
    kind = SyncSource if cluster.mode == "sync" else AsyncSource
    parts = (config.algorithm, stepper, cast(Learner, learner), normalizer)
    if normalizer.mode == "rollouts" and normalizer.moments:
        engine.pool.notices.append(
            "On a cluster the observation statistics that actors use are older than those that a rollout is learned "
            "with. Set observation_statistics=steps (--observation-statistics steps) to learn with those of the actors."
        )
    engine.decided = {"mode": cluster.mode, "block": length}
    if cluster.mode == "sync":
        engine.decided["actors"] = len(engine.pool.actors)
    return kind(*parts, length)


def decided(stepper: VecEnv) -> dict[str, Any]:
    """Return the options that decide numbers; see `Execution.decided`."""
    return _engine(stepper).decided


def _engine(stepper: VecEnv) -> RemoteEngine:
    assert isinstance(stepper.engine, RemoteEngine)
    return stepper.engine


def _block_length(wanted: int, config: Config, stepper: VecEnv, learner: Policy, envs: int) -> int:
    """Return vector steps of a block with so many environments. UsageError if `wanted` makes it larger than 8 MB."""
    fields = transition_fields(stepper.observation_space, stepper.action_space).values()
    carry = sum(4 * layers * size for layers, size in learner.carry_shapes().values())
    most = max(1, BLOCK_BYTES // (envs * (sum(field.nbytes for field in fields) + 2 * carry)))
    if wanted > most:
        raise UsageError(f"A block of {wanted} vector steps is larger than 8 MB. Use a block of {most} at most.")
    memory = config.algorithm.memory()
    if wanted or not isinstance(memory, RolloutSpec):
        return wanted or min(most, BLOCK)
    return max(length for length in range(1, min(most, memory.steps) + 1) if memory.steps % length == 0)


def _packed(environment: Any, options: dict[str, Any]) -> bytes:
    try:
        return pickling.pack(environment, options)
    except Exception as error:  # a user's objects may raise anything
        raise UsageError(
            f"The environment cannot be sent to another process ({summary(error)}). Use its id, or a factory that "
            "makes what it needs when it is called."
        ) from error
