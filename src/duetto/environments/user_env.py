"""Custom environments: from a file, `FILE.py:CLASS`, or registered by a module, `module:Id-v0`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import gymnasium

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
    return user_code.load(*user_code.parts(environment), "environment", gymnasium.Env)[0]


def look_here(environment: str) -> None:
    """Let the module of "module:Id-v0" be imported from the current folder, if it is nowhere else.

    `python -m duetto` has that folder on its path, the installed command `duetto` does not.
    """
    name, _, _ = environment.rpartition(":")
    package, here = name.partition(".")[0], Path.cwd()
    beside = (here / f"{package}.py").is_file() or (here / package).is_dir()
    if package.isidentifier() and beside and str(here) not in sys.path and not find_spec(package):
        sys.path.append(str(here))  # child processes get it from here
