"""The arrays of a memory: their names, shapes and dtypes, from the spaces."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from duetto.algorithms.base import Tree
from duetto.memory.compressed import CompressedRows
from duetto.networks.spaces import Box, Dict, Discrete, MultiDiscrete, Space, columns


@dataclass(frozen=True)
class Field:
    """One value of a transition: its shape without the leading axis, and the dtype it is stored in."""

    shape: tuple[int, ...]
    dtype: np.dtype
    compressed: bool = False  # see `compressed`

    @property
    def nbytes(self) -> int:
        """Bytes of one value."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def is_image(self) -> bool:
        """Whether it holds pictures: three dimensions of bytes."""
        return self.dtype == np.uint8 and len(self.shape) == 3

    def allocate(self, count: int) -> Any:
        """Return an array (count, *shape); floats start as NaN, so that reading what was never written is visible."""
        if self.compressed:
            return CompressedRows(count, self.shape, self.dtype)
        if self.dtype.kind == "f":
            return np.full((count, *self.shape), np.nan, self.dtype)
        return np.zeros((count, *self.shape), self.dtype)

    def check(self, name: str, value: np.ndarray, count: int) -> None:
        """Raise ValueError for another shape than (count, *shape), TypeError for a dtype that cannot be kept."""
        if value.shape != (count, *self.shape):
            raise ValueError(f"{name} has shape {value.shape}, the memory stores {(count, *self.shape)}")
        if value.dtype != self.dtype and not np.can_cast(value.dtype, self.dtype, "same_kind"):
            raise TypeError(f"{name} has dtype {value.dtype}, the memory stores {self.dtype}")


def step_fields(observation_space: Space, action_space: Space, recurrent: bool) -> dict[str, Field]:
    """Every field of a step in a rollout by its name; see `transition_fields`."""
    kept = transition_fields(observation_space, action_space)
    fields = {name: field for name, field in kept.items() if not name.startswith("next_obs")}
    fields |= dict.fromkeys(("log_prob", "value"), fields["reward"])
    if not recurrent:
        return fields
    context = {"previous_action": "action", "previous_reward": "reward", "starts": "terminated"}
    return fields | {name: fields[like] for name, like in context.items()}


def transition_fields(observation_space: Space, action_space: Space) -> dict[str, Field]:
    """Every field of a transition by its name; a Dict observation becomes "obs/<key>" and "next_obs/<key>"."""
    flag, number = Field((), np.dtype(np.bool_)), Field((), np.dtype(np.float32))
    return {
        **_observation_fields("obs", observation_space),
        "action": _action_field(action_space),
        "reward": number,
        **_observation_fields("next_obs", observation_space),
        "terminated": flag,
        "truncated": flag,
    }


def compressed(fields: dict[str, Field]) -> dict[str, Field]:
    """The same fields, with the images compressed."""
    return {name: replace(field, compressed=field.is_image) for name, field in fields.items()}


def named(name: str, value: Tree) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the arrays of an observation under the names that `transition_fields` gives them."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield f"{name}/{key}", part
    else:
        yield name, value


def unnamed(name: str, values: dict[str, np.ndarray]) -> Tree:
    """Return the observation whose arrays are in `values` under the names that `named` gives."""
    if name in values:
        return values[name]
    return {key.removeprefix(f"{name}/"): part for key, part in values.items() if key.startswith(f"{name}/")}


def _observation_fields(name: str, space: Space) -> dict[str, Field]:
    if isinstance(space, Dict):
        return {f"{name}/{key}": _field(part) for key, part in space.parts}
    return {name: _field(space)}


def _field(space: Box | Discrete | MultiDiscrete) -> Field:
    if isinstance(space, Discrete):
        return Field((), np.dtype(np.int64))
    if isinstance(space, MultiDiscrete):
        return Field((len(space.nvec),), np.dtype(np.int64))
    return Field(space.shape, _stored_dtype(np.dtype(space.dtype)))


def _stored_dtype(dtype: np.dtype) -> np.dtype:
    """Images stay uint8: as float32 they would take four times the memory. float64 is more than any network reads."""
    if dtype.kind == "f":
        return np.dtype(np.float32)
    return dtype if dtype in (np.uint8, np.bool_) else np.dtype(np.int64)


def _action_field(space: Space) -> Field:
    if isinstance(space, Box):
        return Field((space.size,), np.dtype(np.float32))
    if isinstance(space, Dict):
        return Field((columns(space),), np.dtype(np.float32))
    return _field(space)
