"""Encode trees of arrays and JSON values: the structure as JSON, arrays as safetensors. Nothing is pickled.

A *state* is a nested dict with str keys. Its leaves are NumPy arrays or JSON values: None, bool, int, float, str and
lists of these. A loaded state equals the saved one in every bit and type.

In the JSON file, `{"$array": name}` refers to an array in the safetensors file. A key of the state that starts with
"$" is written with a second "$". NaN and infinities are written as Python's json module does: NaN, Infinity, -Infinity.
"""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import numpy as np
import safetensors
import safetensors.numpy

from duetto.errors import CheckpointError

State = dict[str, Any]

_DTYPES = {np.dtype(code) for code in ("?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8")}


def encode_tree(name: str, state: State) -> dict[str, bytes]:
    """Return the contents of a state's files, by file name. Raises TypeError for an invalid leaf."""
    arrays: dict[str, np.ndarray] = {}
    files = {f"{name}.json": json.dumps(_encode(state, "", arrays), separators=(",", ":")).encode()}
    return files | ({f"{name}.safetensors": encode_arrays(arrays)} if arrays else {})


def decode_tree(name: str, files: Mapping[str, bytes]) -> State:
    """Undo `encode_tree`. Raises CheckpointError if the files are malformed."""
    if f"{name}.json" not in files:
        raise CheckpointError(f"{name}.json is missing.")
    data = files.get(f"{name}.safetensors")
    arrays = {} if data is None else decode_arrays(data)
    try:
        state = _decode(json.loads(files[f"{name}.json"]), arrays)
        if arrays or not isinstance(state, dict):
            raise ValueError(f"it holds no state of the arrays {sorted(arrays)}")
        return state
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise CheckpointError(f"{name}.json is damaged: {error}.") from error


def encode_arrays(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Return the contents of a safetensors file of named arrays. Raises TypeError for an unsupported dtype or class."""
    for name, array in arrays.items():
        # A subclass would lose its extra data, such as a mask or a unit.
        if type(array) is not np.ndarray or array.dtype not in _DTYPES:
            raise TypeError(f"{name}: {type(array).__name__} {getattr(array, 'dtype', '')} cannot be saved.")
    # safetensors >= 0.6 reads the memory behind an array and ignores its strides
    return safetensors.numpy.save({name: np.asarray(array, order="C") for name, array in arrays.items()})


def decode_arrays(data: bytes) -> dict[str, np.ndarray]:
    """Return the named arrays of a safetensors file; they are writable and own their memory."""
    try:
        return {name: array.copy() for name, array in safetensors.numpy.load(data).items()}
    except (safetensors.SafetensorError, KeyError, ValueError) as error:
        raise CheckpointError(f"A safetensors file is damaged: {error}.") from error


def _encode(node: object, path: str, arrays: dict[str, np.ndarray]) -> object:
    """Return JSON values for a node at a path such as "a/b/", and put its arrays into `arrays`."""
    if isinstance(node, np.ndarray):
        arrays[path[:-1]] = node
        return {"$array": path[:-1]}
    if type(node) is not dict:
        return _encode_value(node, path)
    if strange := [key for key in node if type(key) is not str]:
        raise TypeError(f"{path[:-1]}: the key {strange[0]!r} is not text.")
    return {
        ("$" + key if key.startswith("$") else key): _encode(child, f"{path}{_quoted(key)}/", arrays)
        for key, child in node.items()
    }


def _encode_value(value: Any, path: str) -> object:
    # Exact types: a subclass, such as NumPy's float64, would not keep its type.
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) is list:
        return [_encode_value(item, path) for item in value]
    raise TypeError(
        f"{path[:-1]}: a leaf is an array, None, bool, int, float, text or a list of those, not {type(value).__name__}."
    )


def _decode(node: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Replace each `$array` by its array, which is removed from `arrays`."""
    if not isinstance(node, dict):
        return node
    if node.keys() == {"$array"}:
        return arrays.pop(node["$array"])
    return {key.removeprefix("$"): _decode(child, arrays) for key, child in node.items()}


def _quoted(key: str) -> str:
    """Return the key as a part of an array's name. safetensors reserves the name `__metadata__`."""
    return quote(key, safe=" ", errors="surrogatepass") if key != "__metadata__" else "%5F_metadata__"
