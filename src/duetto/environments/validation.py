"""Call a user's environment, and check the values that it returns before they are converted to arrays.

Without these checks, NumPy would silently convert None to NaN, "3" to a number, and `terminated=None` to False. Wrong
values and errors of the environment raise `EnvironmentFault`.
"""

from __future__ import annotations

import copy
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv
from gymnasium.wrappers.utils import RunningMeanStd

from duetto.environments import rng_state
from duetto.environments.errors import FIVE, EnvironmentFault, kind, raised, shown, wrong_number
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
        raise _not_five(given, number) from None
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


def step_vector(given: Any, num_envs: int) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
    """Check the values of a vector environment's step.

    Returns:
        Observations, rewards (N,) float64, terminated and truncated (N,) bool, and infos.
    """
    try:
        obs, reward, terminated, truncated, infos = given
        reward, *ends = (array(value) for value in (reward, terminated, truncated))
        rewards, (terminated, truncated) = np.array(reward, np.float64), (np.array(end, bool) for end in ends)
    except (TypeError, ValueError):
        raise _not_five(given) from None
    rows = rewards, terminated, truncated
    if any(row.shape != (num_envs,) for row in rows) or not isinstance(infos, dict):
        shapes = ", ".join(str(row.shape) for row in rows)
        raise EnvironmentFault(
            f"step gave rewards, terminated and truncated of the shapes {shapes} and {shown(infos)} as infos. Return "
            f"arrays ({num_envs},) and a dict."
        )
    return obs, rewards, terminated, truncated, infos


def check_spaces(env: Any, label: str, prefix: str = "") -> None:
    """Raise UsageError unless networks support both spaces.

    `prefix` is the prefix of the attributes: "single_" in a vector environment.
    """
    for name in (f"{prefix}observation_space", f"{prefix}action_space"):
        space = getattr(env, name, None)
        if not isinstance(space, gymnasium.Space):
            raise UsageError(
                f"The {name} of {label} is {shown(space)}. Set it in the constructor, to one of gymnasium.spaces."
            )
        try:
            from_gymnasium(space)
        except UsageError as error:
            raise UsageError(f"The {name} of {label} cannot be used. {error}") from error


def _not_five(given: Any, number: int | None = None) -> EnvironmentFault:
    several = isinstance(given, tuple | list)
    return EnvironmentFault(wrong_number(str(len(given))) if several else f"step gave {shown(given)}. {FIVE}.", number)


def _flag(name: str, value: Any, number: int | None) -> bool:
    if kind(value) == "b" or (kind(value) in "iuf" and array(value) in (0, 1)):
        return bool(value)
    raise EnvironmentFault(f"step gave {shown(value)} as {name}. Return True or False.", number)


def running_statistics(environment: Any) -> str:
    """Return the class name of the outermost wrapper whose running statistics still change; "" if none does.

    Each environment has its own statistics, so evaluations and videos would normalize differently than training.
    Values that are neither environments nor vector environments have no statistics.
    """
    while isinstance(environment, gymnasium.Env | VectorEnv):
        own = vars(environment)
        changes = getattr(environment, "update_running_mean", True)
        if changes and any(isinstance(value, RunningMeanStd) for value in own.values()):
            return type(environment).__name__
        environment = own.get("env") or next(iter(own.get("envs", ())), None)  # the first one of a SyncVectorEnv
    return ""
