"""Call a user's environment, and check the values that it returns before arrays convert them.

NumPy converts None to NaN, "3" to a number, and `terminated=None` to False. All functions raise `EnvironmentFault`.
"""

from __future__ import annotations

import copy
import warnings
from typing import Any

import gymnasium
import numpy as np

from duetto.environments import rng_state
from duetto.environments.errors import FIVE, EnvironmentFault, kind, raised, shown, summary, wrong_number
from duetto.environments.obs_tree import array
from duetto.environments.spaces import from_gymnasium
from duetto.errors import DuettoError, UsageError

_NUMBERS = frozenset({float, int, bool, np.float64, np.float32, np.int64})  # the usual types, checked in 30 ns
_FLAGS = frozenset({bool, np.bool_})


def step(env: gymnasium.Env, number: int | None, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
    """Step environment `number`; return observation (which `Layout` checks), reward, terminated, truncated and info."""
    try:
        given = env.step(action)
    except DuettoError:
        raise
    except (Exception, SystemExit) as error:
        raise raised("step", error, number) from error
    try:
        obs, reward, terminated, truncated, info = given
    except (TypeError, ValueError):
        raise EnvironmentFault(_not_five(given), number) from None
    if type(reward) not in _NUMBERS:
        if kind(reward) not in "biuf":
            raise EnvironmentFault(f"step gave {shown(reward)} as reward. Return a number.", number)
        reward = array(reward)[()]
    if type(terminated) not in _FLAGS:
        terminated = _flag("terminated", terminated, number)
    if type(truncated) not in _FLAGS:
        truncated = _flag("truncated", truncated, number)
    if not isinstance(info, dict):
        raise EnvironmentFault(f"step gave {shown(info)} as info. Return a dict; it may be empty.", number)
    return obs, reward, terminated, truncated, info


def reset(env: gymnasium.Env, number: int | None, **arguments: Any) -> tuple[Any, dict[str, Any]]:
    """Start an episode; return its first observation, which `Layout` checks, and its info."""
    if arguments.get("seed") is not None:
        rng_state.seed(env, arguments["seed"])
    try:
        given = env.reset(**arguments)
    except DuettoError:
        raise
    except (Exception, SystemExit) as error:
        raise raised("reset", error, number) from error
    if isinstance(given, tuple | list) and len(given) == 2 and isinstance(given[1], dict):
        return given[0], given[1]
    old = "" if isinstance(given, tuple) else ", perhaps an observation alone, as in the old Gym"
    raise EnvironmentFault(f"reset gave {shown(given)}{old}. Return observation, info, where info is a dict.", number)


def set_attr(env: gymnasium.Env, number: int | None, name: str, value: Any) -> None:
    """Set an attribute to a copy of `value`, in the outermost wrapper that has it or in the environment."""
    if not env.has_wrapper_attr(name):
        raise EnvironmentFault(f"it has no attribute {name!r} to set. Give it one in __init__.", number)
    try:
        env.set_wrapper_attr(name, copy.deepcopy(value))
    except Exception as error:  # a property may do anything
        raise raised(f"setting {name}", error, number) from error


def close(env: gymnasium.Env) -> None:
    """Close an environment. Errors become warnings: the run is over, or raises another error."""
    try:
        env.close()
    except Exception as error:
        warnings.warn(f"close of {env.unwrapped} raised {summary(error)}. It may have left things open.", stacklevel=2)


def reset_vector(given: Any) -> tuple[Any, dict[str, Any]]:
    """Check the values of a vector environment's reset; return observations and infos."""
    if isinstance(given, tuple | list) and len(given) == 2:
        return given[0], given[1] if isinstance(given[1], dict) else {}
    raise EnvironmentFault(f"reset gave {shown(given)}. Return observations, infos.")


def step_vector(given: Any, num_envs: int) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
    """Check the values of a vector environment's step.

    Returns:
        Observations, rewards (N,) float64, terminated and truncated (N,) bool, and infos.
    """
    try:
        obs, reward, terminated, truncated, infos = given
    except (TypeError, ValueError):
        raise EnvironmentFault(_not_five(given)) from None
    rewards = _row(reward)
    if rewards.shape != (num_envs,) or rewards.dtype.kind not in "biuf":
        raise EnvironmentFault(f"step gave {shown(reward)} as rewards. Return {num_envs} number(s) in an array.")
    ends = []
    for name, value in (("terminated", terminated), ("truncated", truncated)):
        flags = _row(value)
        if flags.shape != (num_envs,) or not (flags.dtype.kind == "b" or _zeros_and_ones(flags)):
            raise EnvironmentFault(f"step gave {shown(value)} as {name}. Return {num_envs} truth value(s) in an array.")
        ends.append(np.array(flags, bool))
    if not isinstance(infos, dict):
        raise EnvironmentFault(f"step gave {shown(infos)} as infos. Return a dict; it may be empty.")
    return obs, np.array(rewards, np.float64), ends[0], ends[1], infos


def check_spaces(env: Any, label: str, prefix: str = "") -> None:
    """Raise UsageError unless networks take both spaces of `env`; a vector environment's have the prefix "single_"."""
    for name in (f"{prefix}observation_space", f"{prefix}action_space"):
        space = getattr(env, name, None)
        if space is None:
            raise UsageError(f"{label} has no {name}. Set it in the constructor, to one of gymnasium.spaces.")
        if not isinstance(space, gymnasium.Space):
            found = f"{type(space).__module__}.{type(space).__qualname__}"
            raise UsageError(f"The {name} of {label} is a {found}. Make it one of gymnasium.spaces.")
        try:
            from_gymnasium(space)
        except UsageError as error:
            raise UsageError(f"The {name} of {label} cannot be used. {error}") from error


def _not_five(given: Any) -> str:
    return wrong_number(str(len(given))) if isinstance(given, tuple | list) else f"step gave {shown(given)}. {FIVE}."


def _flag(name: str, value: Any, number: int | None) -> bool:
    if kind(value) == "b" or (kind(value) in "iuf" and _zeros_and_ones(array(value))):
        return bool(value)
    raise EnvironmentFault(f"step gave {shown(value)} as {name}. Return True or False.", number)


def _row(value: Any) -> np.ndarray:
    try:
        return array(value)
    except (ValueError, RuntimeError):  # ragged
        return np.empty(0, object)


def _zeros_and_ones(array: np.ndarray) -> bool:
    return array.dtype.kind in "iuf" and bool(((array == 0) | (array == 1)).all())
