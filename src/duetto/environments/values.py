"""Encode attributes as nested dicts of arrays and JSON values, and decode them, exactly: types, order and all bits."""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from duetto.errors import CheckpointError
from duetto.functional import randomness

_AGAIN = "again"  # an item that is an earlier one of its sequence
_SEQUENCES: dict[str, type] = {"list": list, "tuple": tuple, "deque": deque}


class NotSimpleError(Exception):
    """The value is none that `encode` knows; it has to be left alone."""


class Seen:
    """The mutable objects met so far. Two names for one object would be two objects after loading, so it is refused."""

    def __init__(self) -> None:
        self._known: dict[int, Any] = {}  # keeps them alive: an id is unique only among living objects

    def add(self, value: Any) -> None:
        """Remember a mutable object, or the array that owns a view's memory; NotSimpleError if known."""
        while isinstance(value, np.ndarray) and value.base is not None:
            value = value.base
            if not isinstance(value, np.ndarray):
                raise NotSimpleError("an array in memory that is not NumPy's")
        if id(value) in self._known:
            raise NotSimpleError("two names for one object")
        self._known[id(value)] = value


def encode(value: Any, seen: Seen) -> Any:
    """Encode a value as nested dicts with str keys, arrays and JSON values; NotSimpleError if it is not simple."""
    # Exact types: np.float64 is a float and an IntEnum an int, but they compute otherwise.
    kind: Any = type(value)
    if _is_json(value):
        return value
    if kind is float:
        return {"kind": "float", "value": repr(value)}
    if issubclass(kind, np.generic) and _kept(value.dtype):
        return {"kind": "scalar", "value": np.asarray(value)}
    if issubclass(kind, np.str_ | np.bytes_):
        return {"kind": "scalar", "value": _encode_text(np.asarray(value))}
    if kind is not tuple:
        seen.add(value)
    if kind is np.ndarray and _kept(value.dtype):
        return value.copy()
    if kind is np.ndarray and value.dtype.kind in "SU":
        return _encode_text(value)
    if kind is np.random.Generator:
        return {"kind": "generator", "value": randomness.state_of(value)}
    if kind in _OLDER:
        if value is np.random.mtrand._rand or value is random._inst:  # pyright: ignore[reportAttributeAccessIssue]
            raise NotSimpleError("the process's own generator under another name")
        return {"kind": kind.__name__, "state": encode(_OLDER[kind](value), seen)}
    if kind is dict:
        keys, items = encode(list(value.keys()), seen), encode(list(value.values()), seen)
        return {"kind": "dict", "keys": keys, "items": items}
    if kind.__name__ in _SEQUENCES and kind is _SEQUENCES[kind.__name__]:
        return _encode_sequence(value, seen)
    raise NotSimpleError(f"a value of type {kind.__qualname__}")


def decode(value: Any) -> Any:
    """Return the value that `encode` encoded; arrays and generators are new ones."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if not isinstance(value, dict):
        return value
    match value["kind"]:
        case "float":
            return float(value["value"])
        case "scalar":
            return decode(value["value"])[()]
        case "text":
            return np.frombuffer(value["bytes"].tobytes(), value["dtype"]).reshape(value["shape"]).copy()
        case "generator":
            generator = np.random.Generator(_bit_generator(value["value"]["bit_generator"]))
            randomness.restore(generator, value["value"])
            return generator
        case "RandomState" | "Random":
            return _older(value["kind"], decode(value["state"]))
        case "dict":
            return dict(zip(decode(value["keys"]), decode(value["items"]), strict=True))
        case kind:
            return _decode_sequence(_SEQUENCES[kind], value)


def _state_of(older: np.random.RandomState) -> dict[str, Any]:
    state: Any = older.get_state(legacy=False)
    if state["bit_generator"] != "MT19937":
        raise NotSimpleError(f"a RandomState that draws from {state['bit_generator']}")
    return state


# Generators of the time before NumPy's Generator, and what gives their state.
_OLDER: dict[type, Callable[[Any], Any]] = {np.random.RandomState: _state_of, random.Random: random.Random.getstate}


def _older(kind: str, state: Any) -> np.random.RandomState | random.Random:
    try:
        generator = np.random.RandomState() if kind == "RandomState" else random.Random()
        generator.set_state(state) if isinstance(generator, np.random.RandomState) else generator.setstate(state)
        return generator
    except (TypeError, ValueError, OverflowError) as error:
        raise CheckpointError(f"What should be a random generator's state is none ({error!r}).") from error


def _encode_text(value: np.ndarray) -> dict[str, Any]:
    # An array of text, such as FrozenLake's map, is no JSON value and nothing that safetensors has.
    raw = np.frombuffer(value.tobytes(), np.uint8).copy()
    return {"kind": "text", "dtype": value.dtype.str, "shape": list(value.shape), "bytes": raw}


def _bit_generator(name: str) -> np.random.BitGenerator:
    kind = getattr(np.random, name, None)
    if not (isinstance(kind, type) and issubclass(kind, np.random.BitGenerator)):
        raise CheckpointError(f"{name!r} in the saved state is no random generator of NumPy.")
    return kind()


def _kept(dtype: np.dtype) -> bool:
    """Whether checkpoints can hold arrays of this dtype: numbers in the processor's byte order, of at most 64 bits."""
    return dtype.kind in "biuf" and dtype.isnative and dtype.itemsize <= 8


def _is_json(value: Any) -> bool:
    if type(value) is str:
        return value.isprintable() or not any("\ud800" <= letter <= "\udfff" for letter in value)
    return value is None or type(value) in (bool, int) or (type(value) is float and math.isfinite(value))


def strange(tree: Any, path: str = "") -> str:
    """Describe the first thing in nested dicts that is no array and no JSON value; "" where there is none."""
    if type(tree) is dict:
        if other := next((key for key in tree if type(key) is not str), None):
            return f"the key {other!r}, which is no text{f', at {path}' if path else ''}"
        found = (strange(value, f"{path}/{key}" if path else key) for key, value in tree.items())
        return next(filter(None, found), "")
    if type(tree) is np.ndarray and _kept(tree.dtype):
        return ""
    if type(tree) is list:
        return next(filter(None, (strange(value, f"{path}/{i}") for i, value in enumerate(tree))), "")
    if type(tree) is float or _is_json(tree):
        return ""
    what = f"an array of {tree.dtype}" if isinstance(tree, np.ndarray) else f"a value of type {type(tree).__name__}"
    return f"{what} at {path}, where an array of numbers or a JSON value (a float, not np.float64) should be"


def _encode_sequence(value: Any, seen: Seen) -> dict[str, Any]:
    encoded: dict[str, Any] = {"kind": type(value).__name__}
    if isinstance(value, deque):
        encoded["maxlen"] = value.maxlen
    if all(_is_json(item) for item in value):
        return encoded | {"values": list(value)}
    items: dict[str, Any] = {}
    first: dict[int, int] = {}  # place of each array by its id: stacks of frames begin with one frame several times
    for i, item in enumerate(value):
        is_array = isinstance(item, np.ndarray)
        again = is_array and id(item) in first
        items[str(i)] = {"kind": _AGAIN, "place": first[id(item)]} if again else encode(item, seen)
        if is_array:
            first.setdefault(id(item), i)
    return encoded | {"items": items}


def _decode_sequence(kind: type, value: dict[str, Any]) -> Any:
    items = list(value.get("values", []))
    for i in range(len(value.get("items", ()))):
        item = value["items"][str(i)]
        again = isinstance(item, dict) and item["kind"] == _AGAIN
        items.append(items[_place(item, i)] if again else decode(item))
    return deque(items, value["maxlen"]) if kind is deque else kind(items)


def _place(item: dict[str, Any], before: int) -> int:
    place = item.get("place")
    if not (type(place) is int and 0 <= place < before):
        raise CheckpointError(f"The saved state has {item!r} at place {before} of a sequence, which is none before it.")
    return place
