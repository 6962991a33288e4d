"""Makers of a stepper, an evaluator and memory shards that live in processes of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cloudpickle

from duetto.cluster.actor import Role
from duetto.cluster.actor_pool import Crew
from duetto.cluster.block_source import Distant
from duetto.cluster.evaluator import Beside, Judging
from duetto.cluster.shard_server import Keepers
from duetto.cluster.spread import Spread
from duetto.cluster.transport import Transport
from duetto.environments import VecEnv, is_instance, pickling
from duetto.environments.errors import EnvironmentFault, summary
from duetto.environments.sharding import shares
from duetto.errors import UsageError
from duetto.storage.config import Config
from duetto.training.evaluation import PARALLEL


def place(
    environment: Any,
    options: dict[str, Any],
    connect: Callable[[], Transport],
    actors: int,
    notices: list[str],
    config: Config,
) -> Distant:
    """See `Cluster.make_stepper`. Actors choose actions as the config says.

    Raises:
        UsageError: The environment is an instance, cannot be sent to another process, or does not fit.
    """
    if is_instance(environment):
        raise UsageError(
            "An environment that is made already lives in this process. For a cluster, pass its id, or a factory that "
            "makes a new one at each call."
        )
    recipe = _packed(environment, {name: value for name, value in options.items() if name != "num_envs"})
    num_envs, run = options["num_envs"], config.run
    role = cloudpickle.dumps(Role(config.algorithm, run.backend, run.precision, run.threads, num_envs))
    crew = Crew(connect(), recipe, shares(num_envs, actors), options["worker_timeout"], notices, role)
    try:
        engine = Spread(crew)
    except BaseException as error:
        crew.close()
        if isinstance(error, EnvironmentFault):
            raise error.told("The environments", 0) from error
        raise
    return Distant(engine, engine.name)


def place_evaluator(config: Config, environment: Any, stepper: VecEnv) -> Beside | None:
    """An evaluator in one more actor beside those of `stepper`; None if the run does not evaluate."""
    run = config.run
    if not run.evaluate_every:
        return None
    engine = stepper.engine
    assert isinstance(engine, Spread)
    recipe = _packed(environment, {"to_learn": False, "kwargs": config.environment_options})
    how = (run.backend, run.precision, run.threads, run.evaluation_episodes, run.seed)
    share = range(min(run.evaluation_episodes, PARALLEL))
    return Beside(engine.crew.another(recipe, share, cloudpickle.dumps(Judging(config.algorithm, *how))))


def place_shards(config: Config, stepper: VecEnv, count: int) -> Keepers:
    """Replay memory shards in processes beside the actors of `stepper`."""
    engine = stepper.engine
    assert isinstance(engine, Spread)
    return Keepers(engine.crew, shares(stepper.num_envs, count))


def _packed(environment: Any, options: dict[str, Any]) -> bytes:
    try:
        return pickling.pack(environment, options)
    except Exception as error:  # whatever a user's objects raise
        raise UsageError(
            f"The environment cannot be sent to another process ({summary(error)}). Use its id, or a factory that "
            "makes what it needs when it is called."
        ) from error
