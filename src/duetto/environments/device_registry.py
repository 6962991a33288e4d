"""The ids of environments whose state is arrays, such as gymnax:CartPole-v1, without importing JAX."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from duetto.algorithms.suggestions import did_you_mean
from duetto.environments import env_registry
from duetto.environments.env_registry import Family
from duetto.errors import UsageError
from duetto.storage import user_code

if TYPE_CHECKING:
    from duetto.environments.device_env import DeviceEnv

# By the prefix of their ids. The module `device_<prefix>` has `names()` and `make(name, options)`.
DEVICE_FAMILIES = {
    "gymnax": Family("gymnax", ("gymnax:CartPole-v1", "gymnax:Pendulum-v1"), "gymnax", "gymnax"),
    "playground": Family("MuJoCo Playground", ("playground:CheetahRun",), "playground", "mujoco_playground"),
    "navix": Family("Navix", ("navix:Navix-Empty-8x8-v0",), "navix", "navix"),
}


def is_device(environment: Any) -> bool:
    """Return whether it is the id, the file's class, the class or an instance of a `DeviceEnv`.

    Runs the file of "FILE.py:CLASS".
    """
    if isinstance(environment, str) and not user_code.is_file(environment):
        return environment.partition(":")[0] in DEVICE_FAMILIES
    return getattr(env_registry.resolved(environment), "on_device", False) is True


def make_device_env(environment: Any, options: Mapping[str, Any]) -> DeviceEnv:
    """Make one environment.

    Raises:
        UsageError: The id is unknown, its package is missing, or its options are wrong.
    """
    found: Any = env_registry.resolved(environment)
    if not isinstance(found, str):
        return _made(str(environment), found, options) if isinstance(found, type) else found
    prefix, _, name = found.partition(":")
    family = DEVICE_FAMILIES[prefix]
    try:
        adapter: Any = importlib.import_module(f"duetto.environments.device_{prefix}")
    except ImportError as error:
        raise env_registry.missing(family, found, error) from error
    known = [f"{prefix}:{one}" for one in adapter.names()]
    if found not in known:
        raise UsageError(f"There is no environment {found}.{did_you_mean(found, known)}")
    return _made(found, lambda **given: adapter.make(name, given), options)


def _made(label: str, factory: Any, options: Mapping[str, Any]) -> DeviceEnv:
    try:
        return factory(**options)
    except UsageError:
        raise
    except Exception as error:
        given = f" with {dict(options)}" if options else ""
        raise UsageError(f"{label} cannot be made{given}: {type(error).__name__}: {error}") from error
