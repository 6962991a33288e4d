"""Values that a checkpoint holds: numbers, text, None, arrays of numbers; lists, tuples and dicts of these."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from duetto.environments.errors import shown
from duetto.errors import CheckpointError


def encode(value: Any) -> Any:
    """Copy a value to nested dicts of arrays and JSON values, with its type. TypeError if no checkpoint holds it."""
    if type(value) in (list, tuple):
        return {type(value).__name__: {str(i): encode(one) for i, one in enumerate(value)}}
    if type(value) is dict:
        return {"dict": {"keys": encode(list(value)), "values": encode(list(value.values()))}}
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.kind not in "biuf" or not value.dtype.isnative or value.dtype.itemsize > 8:
            raise TypeError(f"No checkpoint holds {shown(value)}.")
        return {"scalar": np.asarray(value)} if isinstance(value, np.generic) else np.array(value)
    if value is not None and type(value) not in (bool, int, float, str):
        raise TypeError(f"No checkpoint holds {shown(value)}.")
    return value


def decode(value: Any) -> Any:
    """Undo `encode`. Raises CheckpointError for what it did not return."""
    if not isinstance(value, dict):
        return copy.copy(value)
    match value:
        case {"list": dict(items)}:
            return [decode(one) for one in items.values()]
        case {"tuple": dict(items)}:
            return tuple(decode(one) for one in items.values())
        case {"dict": {"keys": keys, "values": values}}:
            return dict(zip(decode(keys), decode(values), strict=True))
        case {"scalar": np.ndarray() as array} if array.ndim == 0:
            return array[()]
    raise CheckpointError(f"The checkpoint has {shown(value)} where a value was set, which is none.")
