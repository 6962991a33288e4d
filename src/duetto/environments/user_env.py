"""Custom environments: from a file, `FILE.py:CLASS`, or registered by a module, `module:Id-v0`."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import cloudpickle
import gymnasium

from duetto.errors import UsageError
from duetto.storage import user_code

T = TypeVar("T")


def resolved(environment: T) -> T | Callable[..., Any]:
    """Return the class or function that "FILE.py:CLASS" names; other values are returned unchanged.

    Runs the file. A name that was read from a folder must be trusted first (`storage.signing`).

    Raises:
        UsageError: The file cannot be read, does not run, or has no such class.
    """
    if not isinstance(environment, str) or not user_code.is_file(environment):
        return environment
    path, name = user_code.parts(environment)
    try:
        source = path.read_bytes()
    except OSError as error:
        again = " A run that started with it needs it there." if isinstance(error, FileNotFoundError) else ""
        raise UsageError(f"The environment's file {path} cannot be read: {error.strerror}.{again}") from error
    return in_module(_module(path, source), name)


@lru_cache(maxsize=16)
def _module(path: Path, source: bytes) -> ModuleType:
    """Run the file once per process, unless it is edited in between."""
    return user_code.run(path, source)


def look_here(environment: str) -> None:
    """Let the module of "module:Id-v0" be imported from the current folder, if it is nowhere else.

    `python -m duetto` has that folder on its path, the installed command `duetto` does not.
    """
    name, _, _ = environment.rpartition(":")
    package, here = name.partition(".")[0], Path.cwd()
    beside = (here / f"{package}.py").is_file() or (here / package).is_dir()
    if package.isidentifier() and beside and str(here) not in sys.path and not find_spec(package):
        sys.path.append(str(here))  # child processes get it from here


def in_module(module: ModuleType, name: str) -> Callable[..., Any]:
    """Return the class or function `name` of a file that was run as `module`.

    It can be pickled for a process without the module.

    Raises:
        UsageError: The name is missing; the message lists the file's environments.
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
        raise UsageError(f"{name} in {file} makes no environments: name a class or a function. {there}")
    cloudpickle.register_pickle_by_value(module)
    return found


def _is_environment(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, gymnasium.Env)
