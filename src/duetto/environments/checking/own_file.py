"""An environment of the user's own, from a file that was run: `FILE.py:CLASS`."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import cloudpickle
import gymnasium

from duetto.errors import UsageError


def in_module(module: ModuleType, name: str) -> Callable[..., Any]:
    """The class, or the function that makes environments, of that name in a file that was run as `module`.

    It can be handed to another process, which does not know the module.

    Raises:
        UsageError: There is none; says which there are.
    """
    own = [key for key, value in vars(module).items() if _is_environment(value) and value.__module__ == module.__name__]
    there = f"It has: {', '.join(own)}." if own else "It has no subclass of gymnasium.Env."
    file = f"{module.__file__}"
    if not name:
        raise UsageError(f"Say which class of {file} is the environment: {file}:CLASS. {there}")
    found = vars(module).get(name)
    if found is None:
        near = difflib.get_close_matches(name, own, n=1)
        hint = f"Did you mean {near[0]!r}? " if near else ""
        raise UsageError(f"{file} has no {name!r}. {hint}{there}")
    if not callable(found):
        raise UsageError(f"{name} in {file} makes no environments: name a class, or a function. {there}")
    cloudpickle.register_pickle_by_value(module)
    return found


def _is_environment(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, gymnasium.Env)
