"""The state of MuJoCo's MjData, and of an MjModel that its environment edits, as domain randomisation does.

A model is half a megabyte, most of it textures, and nearly always the one that the environment was made with. So the
checksum of each of its arrays is kept from when the environment was made, and what is saved are the arrays that differ
from then. A checksum of all says after loading whether the new environment's model is now the same.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

import gymnasium
import numpy as np

_PARTS = ("opt", "stat")  # of a model: the solver's options, and the inertia that its tolerance is scaled by
_made_with: WeakKeyDictionary[gymnasium.Env, dict[str, dict[str, int]]] = WeakKeyDictionary()


def is_data(value: Any) -> bool:
    """Whether this is an MjData."""
    return _is_a(value, "MjData")


def is_model(value: Any) -> bool:
    """Whether this is an MjModel."""
    return _is_a(value, "MjModel")


def remember(layer: gymnasium.Env) -> None:
    """Keep the checksums of the models that this environment, just made, has."""
    models = {name: _checksums(value) for name, value in vars(layer).items() if is_model(value)}
    if models:
        _made_with[layer] = models


def save_model(layer: gymnasium.Env, name: str) -> dict[str, Any]:
    """What differs in the model `layer.name` from when the environment was made; all of it where that is not known."""
    model = getattr(layer, name)
    made_with, now = _made_with.get(layer, {}).get(name, {}), _checksums(model)
    fields = _fields(model)
    changed = {field: fields[field].copy() for field, checksum in now.items() if made_with.get(field) != checksum}
    return {"changed": changed, "all": _overall(now)}


def load_model(model: Any, saved: dict[str, Any]) -> bool:
    """Edit a model as the saved one was; False if it is another one then."""
    fields = _fields(model)
    for field, value in saved["changed"].items():
        if field not in fields or fields[field].shape != value.shape:
            return False
        part, _, last = field.rpartition(".")
        owner = getattr(model, part) if part else model
        if isinstance(getattr(owner, last), np.ndarray):
            getattr(owner, last)[...] = value
        else:
            setattr(owner, last, value.item())
    return _overall(_checksums(model)) == saved["all"]


def save_data(data: Any) -> dict[str, Any]:
    """All arrays that the model sizes, not positions and velocities alone.

    Ant's reward reads xpos and cfrc_ext of the step before, and the solver starts from qacc_warmstart. What the
    contacts size is computed anew by each step; an array is one of these if a fresh MjData has it in another size.
    """
    fresh = type(data)(data.model)
    saved: dict[str, Any] = {"time": float(data.time)}
    for name in dir(data):
        value = None if name.startswith("_") else getattr(data, name)
        if isinstance(value, np.ndarray) and value.size and value.shape == getattr(fresh, name).shape:
            saved[name] = value.copy()
    return saved


def load_data(data: Any, saved: dict[str, Any]) -> None:
    """Undo `save_data`, in a data of the same model."""
    for name, value in saved.items():
        if name == "time":
            data.time = value
        else:
            getattr(data, name)[...] = value  # in place: the memory is MuJoCo's


def _is_a(value: Any, name: str) -> bool:
    return type(value).__name__ == name and type(value).__module__.startswith("mujoco")


def _fields(model: Any) -> dict[str, np.ndarray]:
    """The model's arrays, and the numbers of its options."""
    fields = {name: value for name, value in _public(model) if isinstance(value, np.ndarray) and value.size}
    for part in _PARTS:
        for name, value in _public(getattr(model, part)):
            if isinstance(value, np.ndarray | int | float):
                fields[f"{part}.{name}"] = np.asarray(value)
    return fields


def _public(owner: Any) -> Iterator[tuple[str, Any]]:
    return ((name, getattr(owner, name)) for name in dir(owner) if not name.startswith("_"))


def _checksums(model: Any) -> dict[str, int]:
    return {name: zlib.crc32(np.ascontiguousarray(value).data) for name, value in _fields(model).items()}


def _overall(checksums: dict[str, int]) -> int:
    return zlib.crc32(repr(sorted(checksums.items())).encode())
