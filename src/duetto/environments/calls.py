"""Call an environment that may be a user's, and check what comes back before it is lost in arrays.

NumPy makes NaN of None and a number of "3", False of `terminated=None`. All functions raise `Fault`.
"""

from __future__ import annotations

import copy
import math
import warnings
from typing import Any

import gymnasium
import numpy as np

from duetto.environments.faults import FIVE, Fault, kind, raised, shown, summary, wrong_number
from duetto.environments.spaces import from_gymnasium
from duetto.errors import DuettoError, UsageError

_NUMBERS = frozenset({float, int, bool, np.float64, np.float32, np.int64})  # the usual ones, known in 30 ns
_MOST = 10**300
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
        raise Fault(_not_five(given), number) from None
    if type(reward) is int and abs(reward) > _MOST:  # which no array of numbers holds
        reward = math.inf if reward > 0 else -math.inf
    if type(reward) not in _NUMBERS and kind(reward) not in "biuf":
        raise Fault(f"step gave {shown(reward)} as reward. Return a number.", number)
    if type(terminated) not in _FLAGS:
        terminated = _flag("terminated", terminated, number)
    if type(truncated) not in _FLAGS:
        truncated = _flag("truncated", truncated, number)
    if not isinstance(info, dict):
        raise Fault(f"step gave {shown(info)} as info. Return a dict; it may be empty.", number)
    return obs, reward, terminated, truncated, info


def reset(env: gymnasium.Env, number: int | None, **arguments: Any) -> tuple[Any, dict[str, Any]]:
    """Begin a new episode; return its first observation, which `Layout` checks, and its info."""
    try:
        given = env.reset(**arguments)
    except DuettoError:
        raise
    except (Exception, SystemExit) as error:
        raise raised("reset", error, number) from error
    if isinstance(given, tuple | list) and len(given) == 2 and isinstance(given[1], dict):
        return given[0], given[1]
    old = "" if isinstance(given, tuple) else ", perhaps an observation alone, as in the old Gym"
    raise Fault(f"reset gave {shown(given)}{old}. Return observation, info, where info is a dict.", number)


def set_attr(env: gymnasium.Env, number: int | None, name: str, value: Any) -> None:
    """Set an attribute to a copy of `value`, in the outermost wrapper that has it, or else in the environment."""
    if not env.has_wrapper_attr(name):
        raise Fault(f"it has no attribute {name!r} to set. Give it one in __init__.", number)
    try:
        env.set_wrapper_attr(name, copy.deepcopy(value))
    except Exception as error:  # a property may do anything
        raise raised(f"setting {name}", error, number) from error


def close(env: gymnasium.Env) -> None:
    """Close an environment. What it raises becomes a warning: the run is over, or has an error of its own to tell."""
    try:
        env.close()
    except Exception as error:
        warnings.warn(f"close of {env.unwrapped} raised {summary(error)}. It may have left things open.", stacklevel=2)


def reset_vector(given: Any) -> tuple[Any, dict[str, Any]]:
    """Return the observations and the infos that a vector environment's reset gave."""
    if isinstance(given, tuple | list) and len(given) == 2:
        return given[0], given[1] if isinstance(given[1], dict) else {}
    raise Fault(f"reset gave {shown(given)}. Return observations, infos.")


def step_vector(given: Any, num_envs: int) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
    """Check what a vector environment's step gave; return observations, rewards (N,) float64, terminated and truncated
    (N,) bool, and infos.
    """
    try:
        obs, reward, terminated, truncated, infos = given
    except (TypeError, ValueError):
        raise Fault(_not_five(given)) from None
    rewards = _row(reward)
    if rewards.shape != (num_envs,) or rewards.dtype.kind not in "biuf":
        raise Fault(f"step gave {shown(reward)} as rewards. Return {num_envs} number(s) in an array.")
    ends = []
    for name, value in (("terminated", terminated), ("truncated", truncated)):
        flags = _row(value)
        if flags.shape != (num_envs,) or not (flags.dtype.kind == "b" or _zeros_and_ones(flags)):
            raise Fault(f"step gave {shown(value)} as {name}. Return {num_envs} truth value(s) in an array.")
        ends.append(np.array(flags, bool))
    if not isinstance(infos, dict):
        raise Fault(f"step gave {shown(infos)} as infos. Return a dict; it may be empty.")
    return obs, np.array(rewards, np.float64), ends[0], ends[1], infos


def check_spaces(env: Any, label: str, prefix: str = "") -> None:
    """Raise UsageError unless networks can take both spaces of `env`; vector environments have the prefix "single_"."""
    for name in (f"{prefix}observation_space", f"{prefix}action_space"):
        space = getattr(env, name, None)
        if space is None:
            raise UsageError(
                f"{label} has no {name}. Set it where the environment is made, to one of gymnasium.spaces."
            )
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
    if kind(value) == "b" or (kind(value) in "iuf" and _zeros_and_ones(np.asarray(value))):
        return bool(value)
    raise Fault(f"step gave {shown(value)} as {name}. Return True or False.", number)


def _row(value: Any) -> np.ndarray:
    try:
        return np.asarray(value)
    except ValueError:  # parts of several lengths
        return np.empty(0, object)


def _zeros_and_ones(array: np.ndarray) -> bool:
    return array.dtype.kind in "iuf" and bool(((array == 0) | (array == 1)).all())
