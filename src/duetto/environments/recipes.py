"""Pack how environments are made into bytes for another process of this user: never written to a run's folder."""

from __future__ import annotations

import pickle
import sys
from typing import Any

import cloudpickle
from gymnasium.envs.registration import registry

from duetto.environments import making, own
from duetto.environments.stepping import Stepper


def pack(environment: Any, options: dict[str, Any]) -> bytes:
    """Pack the arguments of `making.make` or, with the option `to_learn=False`, of `making.separate`.

    Uses cloudpickle, as Gymnasium's vector environments do; raises whatever a user's objects do. A class from a file
    is packed itself: the other process may be on a machine without the file.
    """
    environment = own.resolved(environment)
    return pickle.dumps((sys.path, cloudpickle.dumps((environment, options, registration(environment)))))


def registration(environment: Any) -> Any:
    """Return an id's registration here, perhaps by a script, for `register`; None for what is no registered id."""
    return registry.get(environment) if isinstance(environment, str) else None


def register(spec: Any) -> None:
    """Make the id of a `registration` known in this process."""
    if spec is not None:
        registry.setdefault(spec.id, spec)


def make(recipe: bytes, **others: Any) -> Stepper:
    """Make environments from a recipe, with some options replaced; modules are found on the path where it was packed.

    Raises:
        ImportError: A module is not installed here.
        UsageError: As `environments.make`.
    """
    environment, options = unpack(recipe)
    how = making.make if options.pop("to_learn", True) else making.separate
    return how(environment, **options | others)


def unpack(recipe: bytes) -> tuple[Any, dict[str, Any]]:
    """Return the environment and options that `pack` took; an id that a script registered is registered here, too."""
    path, packed = pickle.loads(recipe)
    sys.path += [place for place in path if place not in sys.path]
    environment, options, spec = pickle.loads(packed)
    register(spec)
    return environment, options
