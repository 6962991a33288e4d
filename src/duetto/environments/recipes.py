"""How environments are made, as bytes for another process of this user: never written to a run's folder."""

from __future__ import annotations

import pickle
import sys
from typing import Any

import cloudpickle
from gymnasium.envs.registration import registry

from duetto.environments import making, own
from duetto.environments.stepping import Stepper


def pack(environment: Any, options: dict[str, Any]) -> bytes:
    """What `make` takes or, with the option `to_learn=False`, what `separate` does.

    By cloudpickle, as Gymnasium's vector environments do; raises whatever a user's objects do. A class from a file goes
    as the class: the other process may be on a machine without the file.
    """
    environment = own.resolved(environment)
    return pickle.dumps((sys.path, cloudpickle.dumps((environment, options, registration(environment)))))


def registration(environment: Any) -> Any:
    """How an id is registered here, which may be by a script; None for what is no such id. For `register`."""
    return registry.get(environment) if isinstance(environment, str) else None


def register(spec: Any) -> None:
    """Make the id of a `registration` known in this process."""
    if spec is not None:
        registry.setdefault(spec.id, spec)


def make(recipe: bytes, **others: Any) -> Stepper:
    """Environments made from it, with some of the options replaced; what is imported for it is found as it was there.

    Raises:
        ImportError: A module is not installed here.
        UsageError: As `environments.make`.
    """
    environment, options = unpack(recipe)
    how = making.make if options.pop("to_learn", True) else making.separate
    return how(environment, **options | others)


def unpack(recipe: bytes) -> tuple[Any, dict[str, Any]]:
    """What `pack` took; an id that a script registered is registered here, too."""
    path, packed = pickle.loads(recipe)
    sys.path += [place for place in path if place not in sys.path]
    environment, options, spec = pickle.loads(packed)
    register(spec)
    return environment, options
