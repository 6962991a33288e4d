"""Pickle the arguments of `make` for another process of this user. They are never written to a run's folder."""

from __future__ import annotations

import pickle
import sys
from typing import Any

import cloudpickle

from duetto.environments import env_registry, make_env
from duetto.environments.env_registry import register_spec, registration
from duetto.environments.vec_env import VecEnv


def pack(environment: Any, options: dict[str, Any]) -> bytes:
    """Pickle the arguments of `make_env.make`.

    Uses cloudpickle, as Gymnasium's vector environments do, and raises any error of a user's objects. A class from a
    file is pickled by value, since the other process may be on a machine without the file.
    """
    environment = env_registry.resolved(environment)
    return pickle.dumps((sys.path, cloudpickle.dumps((environment, options, registration(environment)))))


def make(recipe: bytes, **others: Any) -> VecEnv:
    """Make environments from a recipe, with some options replaced, and with the `sys.path` of `pack`.

    Raises:
        ImportError: A module is not installed here.
        UsageError: As `environments.make`.
    """
    path, packed = pickle.loads(recipe)
    sys.path += [place for place in path if place not in sys.path]
    environment, options, spec = pickle.loads(packed)
    register_spec(spec)
    return make_env.make(environment, **options | others)
