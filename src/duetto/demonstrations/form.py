"""The form that demonstrations have on disk: a Minari dataset (HDF5 and JSON, never pickle) that describes itself."""

from __future__ import annotations

import importlib
import lzma
import struct
import zipfile
import zlib
from typing import Any, cast
from urllib.parse import quote

import numpy as np

from duetto.errors import UsageError
from duetto.extras import install
from duetto.networks.spaces import Box, Dict, Discrete, MultiDiscrete, Space, columns

FORMAT = 2
SEALED = 2  # the first format whose folders have a seal
KEY = "duetto"  # of our description in Minari's metadata
METADATA, DATA = "metadata.json", "main_data.hdf5"  # Minari's names

# What a packed file (npz, JPEGs) may claim to hold: any of them this much, and more only in proportion to its size.
# Frames of games shrink up to a hundred times, what is made to fill the memory a thousand times.
ROOM = 2**26  # bytes
EXPANSION = 256

# What Minari, HDF5 and NumPy raise for files that are not as they should be.
DAMAGE = (
    *(OSError, EOFError, ValueError, LookupError, TypeError, AttributeError, AssertionError, RuntimeError),
    *(ArithmeticError, MemoryError, SyntaxError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
)


def stored(space: Space, *, is_action: bool = False) -> Space:
    """Return the space of the stored arrays: choices from 0, rows flat, actions in [-1, 1], keys that HDF5 allows."""
    match space:
        case Box() if is_action:
            low, high = limits(space)
            return Box((space.size,), "float32", tuple(low.tolist()), tuple(high.tolist()))
        case Discrete():
            return Discrete(space.n)
        case MultiDiscrete():
            return MultiDiscrete(space.nvec)
        case Dict():
            parts = ((key(name), stored(part, is_action=is_action)) for name, part in space.parts)
            return Dict(cast("Any", tuple(parts)))
    return space


def limits(space: Space) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounds (A,) of an algorithm's actions: -1 and 1 where the space has bounds, infinite elsewhere."""
    match space:
        case Dict():
            low, high = zip(*(limits(part) for _, part in space.parts), strict=True)
            return np.concatenate(low), np.concatenate(high)
        case Box():
            low, high = space.bounds
            return np.where(np.isfinite(low), -1.0, -np.inf), np.where(np.isfinite(high), 1.0, np.inf)
    free = np.full(columns(space), np.inf)
    return -free, free


def key(name: str) -> str:
    """Return the name of a part in a file."""
    return quote(name, safe=" ")  # in HDF5 "camera/left" would be a group


def h5py() -> Any:
    """Return the h5py package. Call `minari` first, which says so where it is missing."""
    return importlib.import_module("h5py")


def minari() -> Any:
    """Return the minari package, with its storage; UsageError where it is missing."""
    try:
        h5py()
        for part in ("dataset.minari_storage", "serialization", "storage.local"):
            importlib.import_module(f"minari.{part}")
        return importlib.import_module("minari")
    except ImportError as error:
        raise UsageError(f"Demonstrations need minari ({error}). Install: {install('demos')}") from error
