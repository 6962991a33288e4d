"""Names, shapes and dtypes of a buffer's arrays, derived from the spaces."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from duetto.algorithms.base import Tree
from duetto.buffers.base import Experience
from duetto.errors import UsageError
from duetto.functional.pytree import tree_map
from duetto.functional.state_schema import ArrayOf
from duetto.networks.spaces import Box, Dict, Discrete, MultiDiscrete, Space, num_columns

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

    def allocate(self, count: int) -> np.ndarray:
        """Return an array (count, *shape). Floats start as NaN, so that reading unwritten values is visible."""
        shape = (count, *self.shape)
        return np.full(shape, np.nan, self.dtype) if self.dtype.kind == "f" else np.zeros(shape, self.dtype)

    def rows(self, count: int | None = None) -> ArrayOf:
        """Return the schema of an array (count, *shape), or of any number of rows."""
        return ArrayOf(count, self.shape, self.dtype)

    def check(self, name: str, value: np.ndarray, count: int) -> None:
        """Raise ValueError for another shape than (count, *shape), TypeError for a dtype that cannot be kept."""
        if value.shape != (count, *self.shape):
            raise ValueError(f"{name} has shape {value.shape}, the memory stores {(count, *self.shape)}")
        if value.dtype != self.dtype and not np.can_cast(value.dtype, self.dtype, "same_kind"):
            raise TypeError(f"{name} has dtype {value.dtype}, the memory stores {self.dtype}")


class Stacks:
    """The parts of an observation that are stacks of frames: with `frames` above 1, every image."""

    def __init__(self, space: Space, frames: int) -> None:
        self.frames = frames
        parts = {f"obs/{key}": part for key, part in space.parts} if isinstance(space, Dict) else {"obs": space}
        images = {name: part for name, part in parts.items() if isinstance(part, Box) and part.is_image}
        self._channels = {name: _channels(part, frames) for name, part in images.items()} if frames > 1 else {}
        if frames < 1 or (frames > 1 and not images):
            raise UsageError(f"{space} cannot be stacks of {frames} frames: only images can, of 1 frame or more.")

    def __contains__(self, name: str) -> bool:
        return name in self._channels

    def fields(self, whole: dict[str, Field]) -> dict[str, Field]:
        """Return the fields of one place, of observations with the fields `whole`: of each stack, one frame."""
        return {
            name: replace(field, shape=(self._channels[name], *field.shape[1:])) if name in self._channels else field
            for name, field in whole.items()
        }

    def frame(self, obs: Values, back: int = 0) -> Values:
        """Return one frame of each stack, the newest or that `back` frames earlier; the other parts are zeros then."""
        found = tree_map(np.zeros_like, obs) if back else dict(obs)
        for name, size in self._channels.items():
            end = obs[name].shape[1] - back * size
            found[name] = obs[name][:, end - size : end]
        return found

    def check_steps(self, steps: Experience, row: int, first_env: int) -> None:
        """Raise UsageError if a next observation does not hold all frames but the oldest of the observation."""
        obs, next_obs = (dict(named("obs", tree)) for tree in (steps.obs, steps.next_obs))
        for name, size in self._channels.items():
            if not np.array_equal(obs[name][row, size:], next_obs[name][row, :-size]):
                raise UsageError(
                    f"{name!r} of environment {first_env + steps.env[row]} is no stack of {self.frames} frames, "
                    "of which each step drops the oldest and appends one. Set the number of stacked frames to what the "
                    "environment does, or to 1, which stores every observation whole."
                )


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
    flag, number = Field((), np.dtype(np.bool_)), Field((), np.dtype(np.float32))
    return {
        **_observation_fields("obs", observation_space),
        "action": _action_field(action_space),
        "reward": number,
        **_observation_fields("next_obs", observation_space),
        "terminated": flag,
        "truncated": flag,
    }


def stored_fields(observation: Space, action: Space, stacked: int) -> dict[str, Field]:
    """Return the fields that one step takes in an `EpisodeStorage`: its observation, but not the next one."""
    fields = transition_fields(observation, action)
    observed = {name: field for name, field in fields.items() if name.split("/")[0] == "obs"}
    frame = {"places": Field((2,), np.dtype(np.int32))}
    return {name: fields[name] for name in STEP} | Stacks(observation, stacked).fields(observed) | frame


def named(name: str, value: Tree) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the arrays of an observation under the names that `transition_fields` gives them."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield f"{name}/{key}", part
    else:
        yield name, value


def step_values(steps: Experience) -> Values:
    """Return the arrays of steps under the names of `transition_fields`."""
    return {
        **dict(named("obs", steps.obs)),
        "action": steps.action,
        "reward": steps.reward,
        **dict(named("next_obs", steps.next_obs)),
        "terminated": steps.terminated,
        "truncated": steps.truncated,
    }


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
    """Keep images as uint8, a quarter of float32's memory. Networks read no float64."""
    if dtype.kind == "f":
        return np.dtype(np.float32)
    return dtype if dtype in (np.uint8, np.bool_) else np.dtype(np.int64)


def _action_field(space: Space) -> Field:
    if isinstance(space, Box):
        return Field((space.size,), np.dtype(np.float32))
    if isinstance(space, Dict):
        return Field((num_columns(space),), np.dtype(np.float32))
    return _field(space)


def _channels(image: Box, frames: int) -> int:
    """Return the number of channels of one frame."""
    if not image.channels_first or image.shape[0] % frames:
        raise UsageError(
            f"Images {image} cannot be stacks of {frames} frames. Give them as (channels, height, width), with as many "
            "channels for each frame, or set the number of stacked frames to 1."
        )
    return image.shape[0] // frames
