"""Values that a checkpoint holds: numbers, text, None, arrays of numbers; lists, tuples and dicts of these."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from duetto.environments.errors import shown
from duetto.errors import CheckpointError


def is_plain(value: Any) -> bool:
    """Whether a checkpoint holds the value."""
    if isinstance(value, list | tuple):
        return type(value) in (list, tuple) and all(map(is_plain, value))
    if isinstance(value, dict):
        return type(value) is dict and all(map(is_plain, value.keys())) and all(map(is_plain, value.values()))
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype.kind in "biuf" and value.dtype.isnative and value.dtype.itemsize <= 8
    return value is None or (type(value) in (bool, int, float, str) and not _broken(value))


def _broken(value: Any) -> bool:
    """Whether it is a text with half of a pair of characters, which cannot be written."""
    return isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value)


def encode(value: Any) -> Any:
    """Encode a plain value as nested dicts of arrays and JSON values, with its type."""
    if isinstance(value, list | tuple):
        return {type(value).__name__: {str(i): encode(one) for i, one in enumerate(value)}}
    if isinstance(value, dict):
        return {"dict": {"keys": encode(list(value)), "values": encode(list(value.values()))}}
    return {"scalar": np.asarray(value)} if isinstance(value, np.generic) else copy.copy(value)


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


def strange(tree: Any, path: str = "") -> str:
    """Describe the first thing in nested dicts that is no array and no JSON value; "" if there is none."""
    if type(tree) is dict:
        if other := next((key for key in tree if type(key) is not str), None):
            return f"has the key {other!r}, which is no text{f', at {path}' if path else ''}"
        inside: Any = ((f"{path}/{key}" if path else key, value) for key, value in tree.items())
    elif type(tree) is list:
        inside = ((f"{path}/{i}", value) for i, value in enumerate(tree))
    else:
        if is_plain(tree) and not isinstance(tree, np.generic | tuple):
            return ""
        what = f"an array of {tree.dtype}" if isinstance(tree, np.ndarray) else f"a value of type {type(tree).__name__}"
        return f"has {what} at {path}, where an array of numbers or a JSON value (a float, not np.float64) should be"
    return next(filter(None, (strange(value, place) for place, value in inside)), "")
