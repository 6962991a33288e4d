"""Trees of arrays and JSON values as the bytes of files: structure as JSON, arrays as safetensors, never pickle.

A *state* is a nested dict with str keys. Its leaves are NumPy arrays or JSON values: None, bool, int, float, str and
lists of those. A loaded state equals the saved one, bit for bit and type for type.

In the JSON file `{"$array": name}` is an array of the safetensors file. Keys of the state that start with "$"
get a second one. NaN and infinities are written as Python's json module does: NaN, Infinity, -Infinity.
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
    """Return the contents of a state's files, by file name. Raises TypeError for other leaves."""
    if type(state) is not dict:
        raise TypeError(f"A state is a dict, not {_type_name(state)}.")
    arrays: dict[str, np.ndarray] = {}
    files = {f"{name}.json": json.dumps(_encode(state, (), arrays), separators=(",", ":")).encode()}
    return files | ({f"{name}.safetensors": encode_arrays(arrays)} if arrays else {})


def decode_tree(name: str, files: Mapping[str, bytes]) -> State:
    """Undo `encode_tree`. Raises CheckpointError if the files hold no state."""
    if f"{name}.json" not in files:
        raise CheckpointError(f"{name}.json is missing.")
    data = files.get(f"{name}.safetensors")
    arrays = {} if data is None else decode_arrays(data)
    try:
        state = _decode(json.loads(files[f"{name}.json"]), arrays)
        if arrays:
            raise ValueError(f"it does not name the arrays {sorted(arrays)}")
        if not isinstance(state, dict):
            raise ValueError("it holds no state")
        return state
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise CheckpointError(f"{name}.json is damaged: {error}.") from error


def encode_arrays(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Return the contents of a safetensors file of named arrays. Raises TypeError for arrays that it cannot hold."""
    for name, array in arrays.items():
        _check_array(array, name)
    # safetensors >= 0.6 reads the memory behind an array and ignores its strides
    return safetensors.numpy.save({name: np.asarray(array, order="C") for name, array in arrays.items()})


def decode_arrays(data: bytes) -> dict[str, np.ndarray]:
    """Return the named arrays of a safetensors file; they are writable and own their memory."""
    try:
        return {name: array.copy() for name, array in safetensors.numpy.load(data).items()}
    except (safetensors.SafetensorError, KeyError, ValueError) as error:
        raise CheckpointError(f"A safetensors file is damaged: {error}.") from error


def _encode(node: object, path: tuple[str, ...], arrays: dict[str, np.ndarray]) -> object:
    if type(node) is dict:
        for key in node:
            if type(key) is not str:
                raise TypeError(f"{_show(path)}: the key {key!r} is not text.")
        return {
            ("$" + key if key.startswith("$") else key): _encode(child, (*path, key), arrays)
            for key, child in node.items()
        }
    if isinstance(node, np.ndarray):
        _check_array(node, _show(path))
        name = _array_name(path)
        arrays[name] = node
        return {"$array": name}
    return _encode_value(node, path)


def _encode_value(value: Any, path: tuple[str, ...]) -> object:
    # Exact types: a subclass, such as NumPy's float64, would not keep its type.
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) is list:
        return [_encode_value(item, (*path, str(i))) for i, item in enumerate(value)]
    raise TypeError(
        f"{_show(path)}: a leaf is an array, None, bool, int, float, text or a list of those, not {_type_name(value)}."
    )


def _decode(node: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Replace each `$array` by its array, which leaves `arrays`."""
    if not isinstance(node, dict):
        return node
    if node.keys() == {"$array"}:
        return arrays.pop(node["$array"])
    return {key.removeprefix("$"): _decode(child, arrays) for key, child in node.items()}


def _check_array(array: object, path: str) -> None:
    if type(array) is not np.ndarray:  # a subclass carries more than its numbers: a mask, a file, a unit
        raise TypeError(f"{path}: expected a plain NumPy array, not {_type_name(array)}.")
    if array.dtype not in _DTYPES:
        raise TypeError(f"{path}: arrays of {array.dtype!r} cannot be saved.")


def _array_name(path: tuple[str, ...]) -> str:
    name = "/".join(quote(key, safe=" ", errors="surrogatepass") for key in path)
    return "%5F_metadata__" if name == "__metadata__" else name  # safetensors reserves that name


def _show(path: tuple[str, ...]) -> str:
    return "/".join(path) or "(root)"


def _type_name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
