"""Observations that are stacks of the last frames, of which each frame is stored once.

    an episode's observations      o0 = abcd   o1 = bcde   o2 = cdef        oldest frame first
    rows                           a  b  c  d  e  f
                                   .  .  .  o0 o1 o2                        what each row is the newest frame of

The frames before an episode's first observation are kept whatever they hold: black ones, copies, or an older game's.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from duetto.errors import UsageError
from duetto.memory.base import Experience
from duetto.memory.fields import Field, named
from duetto.networks.spaces import Box, Dict, Space

Values = dict[str, np.ndarray]  # parts of observations (N, ...), named as in `transition_fields`


class Stacks:
    """The parts of an observation that are stacks of frames: with `frames` above 1, every image."""

    def __init__(self, space: Space, frames: int) -> None:
        self.frames = frames
        # From an observation's row, those of its frames, the oldest first.
        self.offsets: np.ndarray = np.arange(1 - frames, 1)
        parts = {f"obs/{key}": part for key, part in space.parts} if isinstance(space, Dict) else {"obs": space}
        images = {name: part for name, part in parts.items() if isinstance(part, Box) and part.is_image}
        self._channels = {name: _channels(part, frames) for name, part in images.items()} if frames > 1 else {}
        if frames < 1 or (frames > 1 and not images):
            raise UsageError(f"{space} cannot be stacks of {frames} frames: only images can, of 1 frame or more.")

    def __contains__(self, name: str) -> bool:
        return name in self._channels

    def fields(self, whole: dict[str, Field]) -> dict[str, Field]:
        """Return the fields that a row holds of an observation with the fields `whole`: of each stack, one frame."""
        return {
            name: replace(field, shape=(self._channels[name], *field.shape[1:])) if name in self._channels else field
            for name, field in whole.items()
        }

    def newest(self, obs: Values) -> Values:
        """Return the parts of each observation that a row holds: of each stack, the newest frame."""
        return {
            name: part[:, -self._channels[name] :] if name in self._channels else part for name, part in obs.items()
        }

    def earlier(self, obs: Values, frame: int) -> Values:
        """Return frame number `frame` of every stack, 0 for the oldest, and no other part."""
        return {name: obs[name][:, frame * size : (frame + 1) * size] for name, size in self._channels.items()}

    def check_steps(self, steps: Experience) -> None:
        """Check the observations of `steps`; see `check`."""
        self.check(steps.env, *(dict(named("obs", tree)) for tree in (steps.obs, steps.next_obs)))

    def check(self, env: np.ndarray, obs: Values, next_obs: Values) -> None:
        """Raise UsageError where an observation does not hold all frames but the oldest of the one before."""
        for name, size in self._channels.items():
            shifted = (obs[name][:, size:] == next_obs[name][:, :-size]).all(axis=(1, 2, 3))
            if not shifted.all():
                raise UsageError(
                    f"{name!r} of environment {env[int(shifted.argmin())]} is no stack of {self.frames} frames, of "
                    "which each step drops the oldest and appends one. Set the number of stacked frames to what the "
                    "environment does, or to 1, which stores every observation whole."
                )


def _channels(image: Box, frames: int) -> int:
    """Channels of one frame."""
    if not image.channels_first or image.shape[0] % frames:
        raise UsageError(
            f"Images {image} cannot be stacks of {frames} frames. Give them as (channels, height, width), with as many "
            "channels for each frame, or set the number of stacked frames to 1."
        )
    return image.shape[0] // frames
