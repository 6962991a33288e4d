"""Trees of arrays and JSON values as the bytes of files: structure as JSON, arrays as safetensors, never pickle.

A *state* is a nested dict with str keys. Its leaves are NumPy arrays or JSON values: None, bool, int, float (NaN and
infinities too), str and lists of those. What is loaded equals what was saved, bit for bit and type for type.

In the JSON file an object with one key that begins with a single "$" stands for what JSON cannot say:
`{"$array": name in the safetensors file}`, `{"$float": "nan", "inf" or "-inf"}`, `{"$int": hexadecimal}`. Keys of the
state that begin with "$" get a second one.
"""

import json
import math
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import quote

import numpy as np
import safetensors
import safetensors.numpy

from duetto.errors import CheckpointError

State = dict[str, Any]

_DTYPES = {np.dtype(code) for code in ("?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8")}
_EXACT_IN_A_DOUBLE = 2**53  # other programs read JSON numbers as doubles; Python prints at most 4300 digits


def encode_tree(name: str, state: State) -> dict[str, bytes]:
    """Turn a state into the contents of its files, by file name."""
    if type(state) is not dict:
        raise TypeError(f"A state is a dict, not {_type_name(state)}.")
    arrays: dict[str, np.ndarray] = {}
    structure = _encode(state, (), arrays)
    text = json.dumps(structure, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    files = {f"{name}.json": text.encode()}
    if arrays:
        files[f"{name}.safetensors"] = encode_arrays(arrays)
    return files


def decode_tree(name: str, files: Mapping[str, bytes]) -> State:
    """Turn the contents of files back into a state. Raises CheckpointError if they do not hold one."""
    text = files.get(f"{name}.json")
    if text is None:
        raise CheckpointError(f"{name}.json is missing.")
    try:
        structure = json.loads(text)
        wanted = _array_names(structure)
        arrays = {}
        if wanted:
            if f"{name}.safetensors" not in files:
                raise CheckpointError(f"{name}.safetensors is missing.")
            arrays = decode_arrays(files[f"{name}.safetensors"])
        if wanted != arrays.keys():
            raise ValueError(f"arrays {sorted(wanted ^ arrays.keys())} are not in both files")
        state = _decode(structure, arrays)
        if not isinstance(state, dict):
            raise ValueError("it holds no state")
        return state
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise CheckpointError(f"{name}.json is damaged: {error}.") from error


def encode_arrays(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Turn named arrays into the contents of a safetensors file. Raises TypeError for what it cannot hold."""
    for name, array in arrays.items():
        _check_array(array, name)
    # safetensors >= 0.6 reads the memory behind an array, whatever its strides
    return safetensors.numpy.save({name: np.asarray(array, order="C") for name, array in arrays.items()})


def decode_arrays(data: bytes) -> dict[str, np.ndarray]:
    """Turn the contents of a safetensors file back into writable arrays that own their memory."""
    try:
        return {name: array.copy() for name, array in safetensors.numpy.load(data).items()}
    except (safetensors.SafetensorError, KeyError, ValueError) as error:
        raise CheckpointError(f"A safetensors file is damaged: {error}.") from error


def _encode(node: object, path: tuple[str, ...], arrays: dict[str, np.ndarray]) -> object:
    if type(node) is dict:
        for key in node:
            if type(key) is not str or not _is_text(key):
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


def _encode_value(value: object, path: tuple[str, ...]) -> object:
    kind = type(value)  # exact types: a subclass, like NumPy's float64, would not come back as what it was
    if value is None or kind is bool or (kind is str and _is_text(cast(str, value))):
        return value
    if kind is int:
        integer = cast(int, value)
        return integer if abs(integer) <= _EXACT_IN_A_DOUBLE else {"$int": hex(integer)}
    if kind is float:
        number = cast(float, value)
        return number if math.isfinite(number) else {"$float": repr(number)}
    if kind is list:
        return [_encode_value(item, (*path, str(i))) for i, item in enumerate(cast(list[object], value))]
    raise TypeError(
        f"{_show(path)}: a leaf is an array, None, bool, int, float, text or a list of those, not {_type_name(value)}."
    )


def _decode(node: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    if isinstance(node, list):
        return [_decode(item, arrays) for item in node]
    if not isinstance(node, dict):
        return node
    match _tag(node):
        case None:
            return {key.removeprefix("$"): _decode(child, arrays) for key, child in node.items()}
        case "$array":
            return arrays[node["$array"]]
        case "$int":
            return int(node["$int"], 16)
        case "$float" if node["$float"] in ("nan", "inf", "-inf"):
            return float(node["$float"])
        case tag:
            raise ValueError(f"{tag} is no known mark")


def _array_names(node: Any) -> set[str]:
    if not isinstance(node, dict | list):
        return set()
    if isinstance(node, dict) and _tag(node) == "$array":
        return {node["$array"]}
    children = node.values() if isinstance(node, dict) else node
    return set().union(*(_array_names(child) for child in children))


def _tag(node: dict[str, Any]) -> str | None:
    tags = [key for key in node if key.startswith("$") and not key.startswith("$$")]
    if tags and len(node) != 1:
        raise ValueError(f"{tags[0]} stands beside other keys")
    return tags[0] if tags else None


def _check_array(array: object, path: str) -> None:
    if type(array) is not np.ndarray:  # a subclass carries more than its numbers: a mask, a file, a unit
        raise TypeError(f"{path}: expected a plain NumPy array, not {_type_name(array)}.")
    if array.dtype not in _DTYPES:
        raise TypeError(f"{path}: arrays of {array.dtype!r} cannot be saved.")


def _array_name(path: tuple[str, ...]) -> str:
    name = "/".join(quote(key, safe=" ") for key in path)
    return "%5F_metadata__" if name == "__metadata__" else name  # safetensors keeps that name for itself


def _is_text(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)  # half of a pair cannot be written


def _show(path: tuple[str, ...]) -> str:
    return "/".join(path) or "(root)"


def _type_name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
