"""From the actions that algorithms give, in [-1, 1] or counted from 0, to the environment's own, and back."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from duetto.environments.spaces import from_gymnasium
from duetto.errors import UsageError
from duetto.functional.distributions import cuts
from duetto.networks import masks
from duetto.networks.spaces import Box, Dict, Discrete


class ActionMap:
    """The one map between an algorithm's actions and an environment's.

    Box: float32 (N, A) in [-1, 1], A the number of elements; a_env = low + (a + 1) / 2 * (high - low). An element with
    an infinite bound is any number, and left as it is; see `Box.units`.
    Discrete: int64 (N,) from 0. MultiDiscrete and MultiBinary: int64 (N, A) from 0.

    Raises:
        UsageError: The action space is a Dict or Tuple, or of an unsupported kind.
    """

    def __init__(self, space: gymnasium.Space) -> None:
        self.space = from_gymnasium(space)
        self._own_shape = tuple(space.shape or ())
        self._own_dtype: Any = space.dtype
        if isinstance(self.space, Dict):
            raise UsageError(f"The action space {space} is not supported. Flatten it to one Box or one MultiDiscrete.")
        self.continuous = isinstance(self.space, Box)
        self.row_shape = () if isinstance(self.space, Discrete) else (self._size(),)
        self.dtype = np.dtype(np.float32 if self.continuous else np.int64)
        if isinstance(self.space, Box):
            # Centre and half-width instead of low and width: [-1, 1] stays exactly itself, also close to zero.
            (self._low, self._high), (self._centre, self._half) = self.space.bounds, self.space.units()
        else:
            self._count = np.array(self.space.n if isinstance(self.space, Discrete) else self.space.nvec)
            self._start = np.reshape(getattr(space, "start", np.zeros(self.row_shape, np.int64)), self.row_shape)

    def _size(self) -> int:
        return self.space.size if isinstance(self.space, Box) else len(self.space.nvec)  # type: ignore[union-attr]

    def to_environment(self, action: np.ndarray) -> np.ndarray:
        """Actions (N, ...) in the environment's shape and dtype, in a new array.

        Values outside [-1, 1] (a Gaussian policy's, for example) end at the bounds, where there are any.
        """
        if not self.continuous:
            own = action + self._start
        else:
            own = action * self._half
            own += self._centre
            np.maximum(own, self._low, out=own)
            np.minimum(own, self._high, out=own)
            if np.issubdtype(self._own_dtype, np.integer):
                np.rint(own, out=own)
        return own.astype(self._own_dtype).reshape(len(action), *self._own_shape)

    def from_environment(self, action: np.ndarray) -> np.ndarray:
        """The inverse: the environment's actions (N, ...) as an algorithm gives them; 0 where low equals high."""
        rows = np.asarray(action).reshape(len(action), *self.row_shape)
        if not self.continuous:
            return (rows - self._start).astype(self.dtype)
        half = np.where(self._half == 0, 1.0, self._half)
        return ((rows - self._centre) / half).astype(self.dtype)

    def sample(self, random: np.random.Generator, n: int, mask: np.ndarray | None = None) -> np.ndarray:
        """n independent uniform actions, every dimension on its own; without bounds, uniform in [-1, 1].

        Of those that `mask` (n, ...) allows.
        """
        if mask is not None:
            each = [masks.drawn(random, mask[:, low:high]) for low, high in cuts(masks.choices(self.space))]
            return np.stack(each, axis=1).reshape(n, *self.row_shape)
        if self.continuous:
            return random.uniform(-1, 1, (n, *self.row_shape)).astype(self.dtype)
        return random.integers(0, self._count, (n, *self.row_shape))

    def forbidden(self, action: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """(N,) bool, which of the actions (N, ...) their `mask` (N, n) does not allow."""
        starts = np.array([low for low, _ in cuts(masks.choices(self.space))])
        return np.logical_not(np.take_along_axis(mask, action.reshape(len(action), -1) + starts, axis=1)).any(axis=1)

    def check(self, action: Any, n: int) -> np.ndarray:
        """The actions for n environments, copied to our dtype.

        Raises:
            UsageError: Another shape, fractions where choices are wanted, or a choice that does not exist.
        """
        given = np.asarray(action)
        if given.shape != (n, *self.row_shape):
            raise UsageError(
                f"The action has shape {given.shape}; {n} environment(s) with the action space {self.space} need "
                f"{(n, *self.row_shape)}. Give one row for each environment."
            )
        if self.continuous:
            return np.array(given, self.dtype)
        if given.dtype.kind not in "iu" or np.any((given < 0) | (given >= self._count)):
            raise UsageError(
                f"The action {given.tolist()} is not in {self.space}. Give integers from 0 below the count."
            )
        return np.array(given, self.dtype)
