"""Save the state of MuJoCo's MjData, and of an MjModel that its environment edits, as domain randomisation does.

A model is half a megabyte, most of it textures, and nearly always the one that the environment was made with. So its
arrays are kept as they were when the environment was made, and what is saved are those that differ from then. A
checksum of all says after loading whether the new environment's model is now the same.

Actors of a cluster save their environments behind each block of a few steps, so what can be looked up once is.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np

from duetto.environments.kept import Kept

_MASKS = ("geom_contype", "geom_conaffinity", "geom_group", "geom_priority")  # whole numbers that lead nowhere
_PARTS = ("opt", "stat")  # of a model: the solver's options, and the inertia that its tolerance is scaled by


class _Made:
    """A model as its environment was made with it."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self._arrays = _arrays(model)  # views: MuJoCo never moves them
        fields = self._arrays | _numbers(model)
        self._were = {name: value.tobytes() for name, value in fields.items()}  # comparing is quicker than a checksum
        self._checksums = _checksums(fields)
        self._overall = _overall(self._checksums)

    def save(self) -> dict[str, Any]:
        """See `save_model`."""
        fields = self._arrays | _numbers(self.model)
        changed = {name: value.copy() for name, value in fields.items() if value.tobytes() != self._were[name]}
        overall = _overall(self._checksums | _checksums(changed)) if changed else self._overall
        return {"changed": changed, "all": overall}


_made_with: Kept[dict[str, _Made]] = Kept()
_sized: Kept[list[str]] = Kept()  # of a model: the arrays of its data that it sizes


def is_data(value: Any) -> bool:
    """Whether this is an MjData."""
    return _is_a(value, "MjData")


def is_model(value: Any) -> bool:
    """Whether this is an MjModel."""
    return _is_a(value, "MjModel")


def remember(layer: gymnasium.Env) -> None:
    """Keep the models of an environment layer that was just made, to compare with later."""
    models = {name: _Made(value) for name, value in vars(layer).items() if is_model(value)}
    if models:
        _made_with.set(layer, models)


def save_model(layer: gymnasium.Env, name: str) -> dict[str, Any]:
    """Return what changed in the model `layer.name` since the environment was made; all of it where that is unknown."""
    model, made = getattr(layer, name), (_made_with.get(layer) or {}).get(name)
    if made is not None and made.model is model:
        return made.save()
    fields = {field: value.copy() for field, value in _fields(model).items()}
    return {"changed": fields, "all": _overall(_checksums(fields))}


def load_model(model: Any, saved: dict[str, Any]) -> bool:
    """Edit a model as the saved one was; return False if it is another one then.

    Numbers of other parts (where a joint's position lies, say) stay as they are: MuJoCo follows them without a look,
    and the folder may be a stranger's.
    """
    fields = _fields(model)
    for field, value in saved["changed"].items():
        if field not in fields or fields[field].shape != value.shape or not _harmless(field, value):
            return False
        part, _, last = field.rpartition(".")
        owner = getattr(model, part) if part else model
        if isinstance(getattr(owner, last), np.ndarray):
            getattr(owner, last)[...] = value
        else:
            setattr(owner, last, value.item())
    return _overall(_checksums(_fields(model))) == saved["all"]


def _harmless(field: str, value: np.ndarray) -> bool:
    return value.dtype.kind == "f" or "." in field or field in _MASKS


def save_data(data: Any) -> dict[str, Any]:
    """Return all arrays that the model sizes, not positions and velocities alone, and the time.

    Ant's reward reads xpos and cfrc_ext of the step before, and the solver starts from qacc_warmstart. What the
    contacts size is computed anew by each step; of a fresh MjData these arrays are empty.
    """
    sized = _sized.get(data.model)
    if sized is None:
        fresh = type(data)(data.model)
        sized = [name for name, value in _public(fresh) if isinstance(value, np.ndarray) and value.size]
        _sized.set(data.model, sized)
    return {"time": float(data.time)} | {name: getattr(data, name).copy() for name in sized}


def load_data(data: Any, saved: dict[str, Any]) -> None:
    """Write what `save_data` returned into a data of the same model."""
    for name, value in saved.items():
        if name == "time":
            data.time = value
        else:
            getattr(data, name)[...] = value  # in place: the memory is MuJoCo's


def _is_a(value: Any, name: str) -> bool:
    return type(value).__name__ == name and type(value).__module__.startswith("mujoco")


def _fields(model: Any) -> dict[str, np.ndarray]:
    """Return the model's arrays, and the numbers of its options."""
    return _arrays(model) | _numbers(model)


def _arrays(model: Any) -> dict[str, np.ndarray]:
    return {name: value for name, value in _public(model) if isinstance(value, np.ndarray) and value.size}


def _numbers(model: Any) -> dict[str, np.ndarray]:
    return {
        f"{part}.{name}": np.asarray(value)
        for part in _PARTS
        for name, value in _public(getattr(model, part))
        if isinstance(value, np.ndarray | int | float)
    }


def _public(owner: Any) -> Iterator[tuple[str, Any]]:
    return ((name, getattr(owner, name)) for name in dir(owner) if not name.startswith("_"))


def _checksums(fields: dict[str, np.ndarray]) -> dict[str, int]:
    return {name: zlib.crc32(np.ascontiguousarray(value).data) for name, value in fields.items()}


def _overall(checksums: dict[str, int]) -> int:
    return zlib.crc32(repr(sorted(checksums.items())).encode())
