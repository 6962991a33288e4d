"""Names, shapes and dtypes of a buffer's arrays, derived from the spaces."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from duetto.algorithms.base import Tree
from duetto.errors import UsageError
from duetto.functional.pytree import tree_map
from duetto.networks.spaces import Box, Dict, MultiDiscrete, Space, num_columns

STEP = ("action", "reward", "terminated", "truncated")  # the fields of a step without its observations
Values = dict[str, np.ndarray]  # parts of observations (N, ...), named as in `transition_fields`


@dataclass(frozen=True)
class Field:
    """Shape, without the leading axis, and dtype of one value of a step."""

    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of one value."""
        return math.prod(self.shape) * self.dtype.itemsize

    def allocate(self, *count: int) -> np.ndarray:
        """Return an array (*count, *shape). Floats start as NaN, so that reading unwritten values is visible."""
        return np.full((*count, *self.shape), np.nan if self.dtype.kind == "f" else 0, self.dtype)


class Stacks:
    """The parts of an observation that are stacks of frames: with `frames` above 1, every image (channels first)."""

    def __init__(self, space: Space, frames: int) -> None:
        parts = named("obs", dict(space.parts) if isinstance(space, Dict) else space)
        images = {name: part for name, part in parts if frames > 1 and isinstance(part, Box) and part.is_image}
        self._channels = {name: image.shape[0] // frames for name, image in images.items()}

    def __contains__(self, name: str) -> bool:
        return name in self._channels

    def fields(self, whole: dict[str, Field]) -> dict[str, Field]:
        """Return the fields of one place, of observations with the fields `whole`: of each stack, one frame."""
        return whole | {n: replace(whole[n], shape=(c, *whole[n].shape[1:])) for n, c in self._channels.items()}

    def frame(self, obs: Values, back: int = 0) -> Values:
        """Return one frame of each stack, the newest or that `back` frames earlier; the other parts are zeros then."""
        found = tree_map(np.zeros_like, obs) if back else dict(obs)
        for name, size in self._channels.items():
            end = obs[name].shape[1] - back * size
            found[name] = obs[name][:, end - size : end]
        return found


def too_large(what: str, hint: str, fields: Iterable[Field], count: int) -> UsageError:
    """Return the error for `count` rows of these fields, which do not fit into memory."""
    needed = count * sum(field.nbytes for field in fields) / 2**30
    return UsageError(f"{what} needs {needed:.1f} GiB of memory, which this machine does not have free. {hint}")


def step_fields(observation_space: Space, action_space: Space, recurrent: bool) -> dict[str, Field]:
    """Return every field of a step in a rollout by its name; see `transition_fields`."""
    kept = transition_fields(observation_space, action_space)
    fields = {name: field for name, field in kept.items() if not name.startswith("next_obs")}
    fields |= dict.fromkeys(("log_prob", "value"), fields["reward"])
    if not recurrent:
        return fields
    context = {"previous_action": "action", "previous_reward": "reward", "starts": "terminated"}
    return fields | {name: fields[like] for name, like in context.items()}


def transition_fields(observation_space: Space, action_space: Space) -> dict[str, Field]:
    """Return every field of a transition by its name. A Dict observation becomes "obs/<key>" and "next_obs/<key>"."""
    parts = dict(observation_space.parts) if isinstance(observation_space, Dict) else observation_space
    flag, number = Field((), np.dtype(np.bool_)), Field((), np.dtype(np.float32))
    in_columns = isinstance(action_space, Box | Dict)
    return {
        **{name: _field(part) for name, part in named("obs", parts)},
        "action": Field((num_columns(action_space),), number.dtype) if in_columns else _field(action_space),
        "reward": number,
        **{name: _field(part) for name, part in named("next_obs", parts)},
        "terminated": flag,
        "truncated": flag,
    }


def named(name: str, value: Tree) -> Iterator[tuple[str, Any]]:
    """Yield the parts of an observation under the names that `transition_fields` gives them."""
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


def _field(space: Any) -> Field:
    """Return the field of a space. Images stay uint8, a quarter of float32's memory; networks read no float64."""
    if not isinstance(space, Box):
        return Field((len(space.nvec),) if isinstance(space, MultiDiscrete) else (), np.dtype(np.int64))
    dtype = np.dtype(space.dtype)
    if dtype.kind == "f":
        dtype = np.dtype(np.float32)
    return Field(space.shape, dtype if dtype in (np.float32, np.uint8, np.bool_) else np.dtype(np.int64))
