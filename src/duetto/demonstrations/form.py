"""The form that demonstrations have on disk: a Minari dataset (HDF5 and JSON, never pickle) that describes itself."""

from __future__ import annotations

import importlib
import zipfile
import zlib
from typing import Any, cast
from urllib.parse import quote

from duetto.errors import UsageError
from duetto.networks.spaces import Box, Dict, Discrete, MultiDiscrete, Space

FORMAT = 1
KEY = "duetto"  # of our description in Minari's metadata

# What Minari, HDF5 and NumPy raise for files that are not as they should be.
DAMAGE = (
    *(OSError, EOFError, ValueError, KeyError, TypeError, AttributeError, AssertionError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error),
)


def stored(space: Space, *, is_action: bool = False) -> Space:
    """The space of what is in the arrays: choices from 0, rows flat, actions in [-1, 1], keys that HDF5 can have."""
    match space:
        case Box() if is_action:
            return Box((space.size,), "float32", (-1.0,), (1.0,))
        case Discrete():
            return Discrete(space.n)
        case MultiDiscrete():
            return MultiDiscrete(space.nvec)
        case Dict():
            return Dict(tuple((key(name), cast("Any", stored(part))) for name, part in space.parts))
    return space


def key(name: str) -> str:
    """The name of a part in a file."""
    return quote(name, safe=" ")  # in HDF5 "camera/left" would be a group


def minari() -> Any:
    """The package, with its storage; UsageError where it is missing."""
    try:
        importlib.import_module("h5py")
        for part in ("dataset.minari_storage", "storage.local"):
            importlib.import_module(f"minari.{part}")
        return importlib.import_module("minari")
    except ImportError as error:
        raise UsageError(f"Demonstrations need minari ({error}). Install: pip install 'duetto[demos]'") from error
