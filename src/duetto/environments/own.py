"""Environments of the user's own: from a file, `FILE.py:CLASS`, or registered by a module, `module:Id-v0`."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import cloudpickle
import gymnasium

from duetto import own_files
from duetto.errors import UsageError

T = TypeVar("T")


def resolved(environment: T) -> T | Callable[..., Any]:
    """Return the class or function that "FILE.py:CLASS" names; whatever names no file is returned as it is.

    The file is run. Whoever read the text from a folder has to allow that first: see `storage.trust`.

    Raises:
        UsageError: The file cannot be read, does not run, or has no such class.
    """
    if not isinstance(environment, str) or not own_files.is_file(environment):
        return environment
    path, name = own_files.parts(environment)
    try:
        source = path.read_bytes()
    except OSError as error:
        again = " A run that was begun with it wants it back there." if isinstance(error, FileNotFoundError) else ""
        raise UsageError(f"The environment's file {path} cannot be read: {error.strerror}.{again}") from error
    return in_module(_module(path, source), name)


@lru_cache(maxsize=16)
def _module(path: Path, source: bytes) -> ModuleType:
    """Run the file once for all environments that a process makes, unless it is edited in between."""
    return own_files.run(path, source)


def look_here(environment: str) -> None:
    """Let the module of "module:Id-v0" be imported from the current folder, where it is nowhere else.

    Python has that folder on its path with `python -m duetto`, and not in the installed command `duetto`.
    """
    name, _, _ = environment.rpartition(":")
    package, here = name.partition(".")[0], Path.cwd()
    beside = (here / f"{package}.py").is_file() or (here / package).is_dir()
    if package.isidentifier() and beside and str(here) not in sys.path and not find_spec(package):
        sys.path.append(str(here))  # for the processes that are made from here on, too


def modules_of(environment: Any, envs: Iterable[Any]) -> set[str]:
    """Return the names of the modules that environments come from: those of every layer of `envs`, which live in this
    process, and those of the id, the function or the object that they are made from.
    """
    made = resolved(environment)
    whole = [*envs, made] if isinstance(made, gymnasium.Env) else envs
    names = {kind.__module__ for env in whole for layer in _layers(env) for kind in type(layer).__mro__}
    if isinstance(made, str):
        imported, _, name = made.rpartition(":")
        spec = gymnasium.registry.get(name)
        makers = [spec.entry_point, *(one.entry_point for one in spec.additional_wrappers)] if spec else []
        return names | {_module_of(maker) for maker in (imported, *makers) if maker}
    if isinstance(made, gymnasium.Env):
        return names
    inside = getattr(getattr(made, "unwrapped", None), "env_fns", [made])
    return names | {_module_of(one) for one in inside}


def _layers(env: Any) -> list[Any]:
    layers: list[Any] = []
    while env is not None and all(env is not one for one in layers):
        layers.append(env)
        env = getattr(env, "__dict__", {}).get("env")
    return layers


def _module_of(maker: Any) -> str:
    """Return the module of "module:attribute", or of a function or class, maybe in a `partial`."""
    if isinstance(maker, str):
        return maker.partition(":")[0]
    while isinstance(maker, partial):
        maker = maker.func
    return getattr(maker, "__module__", None) or type(maker).__module__


def in_module(module: ModuleType, name: str) -> Callable[..., Any]:
    """Return the class, or the function that makes environments, of that name in a file that was run as `module`.

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
