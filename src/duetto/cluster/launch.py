"""Make the parts of a run on a cluster: environments, a source of experience, and replay shards."""

from __future__ import annotations

from typing import Any

import cloudpickle
from typing_extensions import override

from duetto.algorithms.base import Algorithm, RolloutSpec
from duetto.cluster.actor import ActorRole, pack
from duetto.cluster.actor_pool import ActorPool
from duetto.cluster.block_source import BlockSource
from duetto.cluster.config import Cluster
from duetto.cluster.modes import AsyncSource, SyncSource
from duetto.cluster.remote_engine import RemoteEngine, shares
from duetto.cluster.shard_server import RemoteShards
from duetto.environments import VecEnv, is_instance
from duetto.environments.errors import EnvironmentFault, summary
from duetto.errors import UsageError
from duetto.learners import Learner
from duetto.storage.config import Config
from duetto.training.components import Execution
from duetto.training.normalizer import Normalizer

BLOCK = 16  # default vector steps of a block, except for rollouts


class ClusterExecution(Execution):
    """Creates the actors, which step the environments, and the shards that may store the replay buffer."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._mode = cluster, cluster.mode or "sync"
        self._block = 0
        self._pool: ActorPool

    @override
    def make_stepper(self, config: Config, environment: Any, notices: list[str], **options: Any) -> VecEnv:
        """Start actors, and return their environments.

        Closing the environments ends the actors, and the cluster if it was started here.

        Raises:
            UsageError: The environment is an instance, cannot be sent to another process, or has a fault; the cluster
                has too few CPUs; or the algorithm does not support the cluster's options.
        """
        cluster, run = self._cluster, config.run
        self._check(config.algorithm)
        if is_instance(environment):
            raise UsageError(
                "The environment is an object of this process. For a cluster, pass its id, or a factory that makes a "
                "new environment at each call."
            )
        num_envs, wanted = options.pop("num_envs"), cluster.actors or 2
        actors, shards = min(wanted, num_envs), min(cluster.replay_shards, num_envs)
        ends = (("actors", actors, wanted), ("shards", shards, cluster.replay_shards))
        if fewer := [f"{used} of the {of} {what}" for what, used, of in ends if used < of]:
            notices.append(f"num_envs is {num_envs}, so the run uses {' and '.join(fewer)}. Give more --num-envs.")
        try:
            recipe = pack(environment, options)
        except Exception as error:  # a user's objects may raise anything
            raise UsageError(
                f"The environment cannot be sent to another process ({summary(error)}). Use its id, or a factory that "
                "makes what it needs when it is called."
            ) from error
        role = cloudpickle.dumps(ActorRole(recipe, config.algorithm, run.backend, run.precision, run.threads, num_envs))
        transport = cluster.connect(actors + shards)
        self._pool = ActorPool(transport, role, shares(num_envs, actors), options["worker_timeout"], notices)
        try:
            engine = RemoteEngine(self._pool)
        except BaseException as error:
            self._pool.close()
            if isinstance(error, EnvironmentFault):
                raise error.located("The environments", 0) from error
            raise
        stepper = VecEnv(engine, engine.name)
        stepper.older = True
        return stepper

    def _check(self, algorithm: Algorithm) -> None:
        """Raise UsageError if the algorithm cannot use this mode or replay shards."""
        spec, shards = algorithm.memory(), self._cluster.replay_shards
        if spec.on_policy and (shards or self._mode == "async"):
            raise UsageError(
                f"{algorithm.name()} learns from rollouts, which need the same number of steps of every "
                "environment. Use the mode sync, without replay_shards (--replay-shards)."
            )
        if shards and getattr(spec, "hindsight", None) is not None:
            raise UsageError(
                "Hindsight computes rewards of other goals with the environment when a batch is sampled, which replay "
                "shards cannot do. Leave out replay_shards (--replay-shards), or hindsight."
            )

    @override
    def make_shards(self, stepper: VecEnv) -> RemoteShards | None:
        count = min(self._cluster.replay_shards, stepper.num_envs)
        return RemoteShards(self._pool, shares(stepper.num_envs, count)) if count else None

    @override
    def make_source(self, config: Config, stepper: VecEnv, learner: Learner, normalizer: Normalizer) -> BlockSource:
        """Return the actors as a source of experience."""
        memory = config.algorithm.memory()
        self._block = self._cluster.block or (memory.steps if isinstance(memory, RolloutSpec) else BLOCK)
        kind = SyncSource if self._mode == "sync" else AsyncSource
        return kind(config.algorithm, stepper, learner, normalizer, self._block)

    @override
    def decided(self) -> dict[str, Any]:
        actors = {"actors": len(self._pool.actors)} if self._mode == "sync" else {}
        return {"mode": self._mode, "block": self._block} | actors
