"""From an environment to a `Stepper` whose environments live in actors."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import cloudpickle

from duetto.cluster.blocks import Distant
from duetto.cluster.crew import Crew
from duetto.cluster.player import Role
from duetto.cluster.spread import Spread
from duetto.cluster.transport import Transport
from duetto.environments import Stepper, recipes
from duetto.environments.faults import Fault, summary
from duetto.environments.shares import shares
from duetto.errors import UsageError
from duetto.storage.config import Config
from duetto.training.session import is_instance


def place(
    environment: Any,
    options: dict[str, Any],
    connect: Callable[[], Transport],
    actors: int,
    notices: list[str],
    acts: Config | None = None,
) -> Stepper:
    """See `Cluster.make_stepper`. With the config `acts` the actors act as it says; else they only step.

    Raises:
        UsageError: The environment cannot be made in another process, or is none that fits.
    """
    if is_instance(environment):
        raise UsageError(
            "An environment that is made already lives in this process. For a cluster, pass its id, or a factory that "
            "makes a new one at each call."
        )
    try:
        recipe = recipes.pack(environment, {name: value for name, value in options.items() if name != "num_envs"})
    except Exception as error:  # whatever a user's objects raise
        raise UsageError(
            f"The environment cannot be sent to another process ({summary(error)}). Use its id, or a factory that "
            "makes what it needs when it is called."
        ) from error
    num_envs, role = options["num_envs"], None
    if acts is not None:
        if acts.origin and acts.origin.file:  # a module that nobody else can import
            cloudpickle.register_pickle_by_value(sys.modules[type(acts.algorithm).__module__])
        role = cloudpickle.dumps(Role(acts.algorithm, acts.run.backend, acts.run.precision, num_envs))
    crew = Crew(connect(), recipe, shares(num_envs, actors), options["worker_timeout"], notices, role)
    try:
        engine = Spread(crew)
    except BaseException as error:
        crew.close()
        if isinstance(error, Fault):
            raise error.told("The environments", 0) from error
        raise
    return Stepper(engine, engine.name) if role is None else Distant(engine, engine.name)
