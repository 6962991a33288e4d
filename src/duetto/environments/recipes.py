"""How environments are made, as bytes for another process of this user: never written to a run's folder."""

from __future__ import annotations

import pickle
import sys
from typing import Any

import cloudpickle
from gymnasium.envs.registration import registry

from duetto.environments import making
from duetto.environments.stepping import Stepper


def pack(environment: Any, options: dict[str, Any]) -> bytes:
    """What `make` takes. By cloudpickle, as Gymnasium's vector environments do; raises whatever a user's objects do."""
    spec = registry.get(environment) if isinstance(environment, str) else None  # may be registered by a script
    return pickle.dumps((sys.path, cloudpickle.dumps((environment, options, spec))))


def make(recipe: bytes, **others: Any) -> Stepper:
    """Environments made from it, with some of the options replaced; what is imported for it is found as it was there.

    Raises:
        ImportError: A module is not installed here.
        UsageError: As `environments.make`.
    """
    environment, options = unpack(recipe)
    return making.make(environment, **options | others)


def unpack(recipe: bytes) -> tuple[Any, dict[str, Any]]:
    """What `pack` took; an id that a script registered is registered here, too."""
    path, packed = pickle.loads(recipe)
    sys.path += [place for place in path if place not in sys.path]
    environment, options, spec = pickle.loads(packed)
    if spec is not None:
        registry.setdefault(spec.id, spec)
    return environment, options
