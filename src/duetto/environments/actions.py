"""Convert actions between algorithms and environments; read action masks.

In algorithms, continuous actions are in [-1, 1] and discrete actions count from 0. An environment returns masks in
`info["action_mask"]`. Duetto adds each mask to an observation (`networks.masks`):

reset, step    the mask is for the action that follows the returned observation
episode's end  the mask belongs to the final observation. After a termination no action follows, so a mask that is
               missing or forbids every action is replaced by a mask that allows every action.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any

import gymnasium
import numpy as np

from duetto.environments.errors import EnvironmentFault, shown
from duetto.environments.obs_tree import Tree, array
from duetto.environments.spaces import Layout, from_gymnasium
from duetto.errors import UsageError
from duetto.functional.distributions import split_bounds
from duetto.networks import masks
from duetto.networks.spaces import Box, Dict, Discrete, Space, num_columns

KEY = "action_mask"
ALWAYS = f"Return info[{KEY!r}] from every reset and every step, or never."


class ActionMap:
    """Converts actions between an algorithm and an environment. The algorithm's format depends on the space:

    Box: float32 (N, A) in [-1, 1], with A elements; a_env = low + (a + 1) / 2 * (high - low). An element with an
    infinite bound is not scaled (`Box.units`).
    Discrete: int64 (N,) from 0. MultiDiscrete and MultiBinary: int64 (N, A) from 0.
    Dict and Tuple: float32 (N, A), all parts concatenated. `Structure` converts a row to the environment's dict or
    tuple.

    Raises:
        UsageError: The action space is of an unsupported kind.
    """

    def __init__(self, space: gymnasium.Space[Any]) -> None:
        self.space: Space = from_gymnasium(space)
        self.continuous: bool = isinstance(self.space, Box)
        self.row_shape: tuple[int, ...] = () if isinstance(self.space, Discrete) else (num_columns(self.space),)
        self.dtype: np.dtype[Any] = np.dtype(np.float32 if isinstance(self.space, Box | Dict) else np.int64)
        self._own_shape = tuple(space.shape or ())
        self._own_dtype: Any = space.dtype
        self._parts: list[ActionMap] = []
        if isinstance(self.space, Dict):
            self._parts = [ActionMap(leaf.find(space)) for leaf in Layout(space).leaves]
            self._ends = split_bounds([num_columns(part.space) for part in self._parts])
        elif isinstance(self.space, Box):
            # Center and half-width instead of low and width, so that values close to zero stay exact.
            (self._low, self._high), (self._centre, self._half) = self.space.bounds, self.space.units()
        else:
            self._count = np.array(self.space.n if isinstance(self.space, Discrete) else self.space.nvec)
            start = getattr(space, "start", np.zeros(self.row_shape))
            self._start = np.reshape(start, self.row_shape).astype(np.int64)

    def _split(self, action: np.ndarray) -> list[tuple[ActionMap, np.ndarray]]:
        """Return the `ActionMap` of each part, with its columns of `action` (N, A).

        Fractional values of discrete parts stay floats, so that `check` refuses them.
        """
        found = []
        for part, (low, high) in zip(self._parts, self._ends, strict=True):
            own = action[:, low:high].reshape(len(action), *part.row_shape)
            whole = not part.continuous and bool((own == np.floor(own)).all())
            found.append((part, own.astype(np.int64) if whole else own))
        return found

    def to_environment(self, action: Any, xp: Any = np) -> Any:
        """Convert actions (N, ...) to the environment's shape and dtype, in a new array.

        For Dict and Tuple spaces, the result is rows (N, A) float64, which `Structure` converts further. Values outside
        [-1, 1], such as samples of a Gaussian policy, are clipped to the bounds.
        """
        if self._parts:
            each = [part.to_environment(own) for part, own in self._split(action)]
            return np.concatenate([own.reshape(len(action), -1) for own in each], axis=1, dtype=np.float64)
        if not self.continuous:
            own = action + self._start
        else:
            own = xp.minimum(xp.maximum(action * self._half + self._centre, self._low), self._high)
            if self._own_dtype.kind in "biu":  # integers or booleans
                own = xp.rint(own)
        return own.astype(self._own_dtype).reshape(len(action), *self._own_shape)

    def from_environment(self, action: np.ndarray) -> np.ndarray:
        """Convert the environment's actions (N, ...) to an algorithm's format. Elements with equal bounds become 0."""
        rows = np.asarray(action).reshape(len(action), *self.row_shape)
        if not self.continuous:
            return (rows - self._start).astype(self.dtype)
        half = np.where(self._half == 0, 1.0, self._half)
        return ((rows - self._centre) / half).astype(self.dtype)

    def sample(self, random: np.random.Generator, n: int, mask: np.ndarray | None = None) -> np.ndarray:
        """Draw n uniform actions in an algorithm's format, each dimension independently.

        Continuous dimensions are drawn from [-1, 1], also if they have no bounds. Discrete actions are drawn
        from those that `mask` (n, ...) allows.
        """
        if self._parts:
            ends = split_bounds([sum(masks.choice_sizes(part.space)) for part in self._parts])
            own = [None if mask is None or low == high else mask[:, low:high] for low, high in ends]
            each = [part.sample(random, n, one).reshape(n, -1) for part, one in zip(self._parts, own, strict=True)]
            return np.concatenate(each, axis=1, dtype=np.float32)
        if mask is not None:
            each = [
                masks.sample_allowed(random, mask[:, low:high])
                for low, high in split_bounds(masks.choice_sizes(self.space))
            ]
            return np.stack(each, axis=1).reshape(n, *self.row_shape)
        if self.continuous:
            return random.uniform(-1, 1, (n, *self.row_shape)).astype(self.dtype)
        return random.integers(0, self._count, (n, *self.row_shape))

    def check(self, action: Any, n: int) -> np.ndarray:
        """Check the actions for n environments; return a copy with the algorithm's dtype.

        Raises:
            UsageError: The shape is wrong, or a discrete action is no integer or out of range.
        """
        given = array(action)
        if given.shape != (n, *self.row_shape):
            raise UsageError(
                f"The action has shape {given.shape}; {n} environment(s) with the action space {self.space} need "
                f"{(n, *self.row_shape)}. Give one row for each environment."
            )
        for part, own in self._split(given) if self._parts else ():
            part.check(own, n)
        discrete = not (self._parts or self.continuous)
        if discrete and (given.dtype.kind not in "iu" or np.any((given < 0) | (given >= self._count))):
            raise UsageError(f"The action {given.tolist()} is not in {self.space}. Give integers, counted from 0.")
        return np.array(given, self.dtype)


def structure(space: gymnasium.Space[Any]) -> list[Any]:
    """Return [path, shape, dtype] of each part of a Dict or Tuple space, for checkpoints; [] for any other space.

    A path is a list of the dict keys and tuple positions that lead to the part.
    """
    if not isinstance(space, gymnasium.spaces.Dict | gymnasium.spaces.Tuple):
        return []
    parts = [(leaf, leaf.find(space)) for leaf in Layout(space).leaves]
    return [[list(leaf.path), list(part.shape or ()), np.dtype(part.dtype).name] for leaf, part in parts]


class Structure:
    """Converts rows (N, A) to nested actions (dicts, tuples). `made` is the list that `structure` returned.

    Attributes:
        nested: Whether actions are dicts or tuples.
        sizes, dtypes: Size and dtype of each part in a row, by name; {} if the action is one array.
    """

    def __init__(self, made: list[Any]) -> None:
        self._parts = {"/".join(map(str, path)): (path, shape, np.dtype(dtype)) for path, shape, dtype in made}
        self.nested: bool = bool(made)
        self.sizes: dict[str, int] = {name: math.prod(shape) for name, (_, shape, _) in self._parts.items()}
        self.dtypes: dict[str, np.dtype] = {name: dtype for name, (_, _, dtype) in self._parts.items()}
        self._ends = split_bounds(list(self.sizes.values()))

    def named(self, called: Callable[[str], str]) -> Any:
        """Return the nested structure with `called(name)` in place of each part's array."""
        return self._rebuild(map(called, self._parts))

    def nest(self, rows: Any) -> Any:
        """Convert a row (A,) to an environment's nested action, or rows (N, A) to a vector environment's."""
        if not self.nested:
            return rows
        parts = zip(self._parts.values(), self._ends, strict=True)
        return self._rebuild(
            rows[..., low:high].reshape((*rows.shape[:-1], *shape)).astype(dtype)[()]
            for (_, shape, dtype), (low, high) in parts
        )

    def _rebuild(self, values: Iterable[Any]) -> Any:
        root: dict[Any, Any] = {}
        for (path, _, _), value in zip(self._parts.values(), values, strict=True):
            inner = reduce(lambda node, key: node.setdefault(key, {}), path[:-1], root)
            inner[path[-1]] = value
        return _with_tuples(root)


def _with_tuples(node: Any) -> Any:
    """Replace each dict whose keys are positions by a tuple."""
    if not isinstance(node, dict):
        return node
    parts = {key: _with_tuples(part) for key, part in node.items()}
    return tuple(parts[i] for i in range(len(parts))) if 0 in parts else parts


# ------------------------------------------------------------------------------------------- masks
class ActionMasks:
    """Adds the action masks that environments return in their infos to the observations.

    Attributes:
        given: Whether the environments return masks; None before the first reset.
    """

    def __init__(self, action_space: gymnasium.Space[Any]) -> None:
        self._choices = masks.choice_sizes(from_gymnasium(action_space))
        self.given: bool | None = None

    def attach(self, obs: Tree, found: Sequence[Any], over: np.ndarray | None = None) -> Tree:
        """Add masks to observations (N, ...). `found` has an entry per environment: the mask in its info, or None.

        Where `over` (N,) is True, no action follows, so the mask may be missing or forbid every action.
        """
        if self.given is None:
            # Continuous actions have no choices, and so no masks.
            self.given = bool(self._choices) and any(one is not None for one in found)
        if not self.given:
            for env, one in enumerate(found) if self._choices else ():
                if one is not None:
                    raise EnvironmentFault(f"info has an {KEY}, but the first reset's info had none. {ALWAYS}", env)
            return obs
        rows = [self._row(one, env, over is not None and bool(over[env])) for env, one in enumerate(found)]
        return masks.with_mask(obs, np.stack(rows))

    def write(self, tree: Tree, env: int, found: Any) -> None:
        """Overwrite one environment's mask in the observations `tree`. `found` is the mask in its info, or None."""
        if self.given:
            assert isinstance(tree, dict)
            tree[masks.MASK][env] = self._row(found, env, over=False)

    def _row(self, found: Any, env: int, over: bool) -> np.ndarray:
        size = sum(self._choices)
        if found is None:
            if over:
                return np.ones(size, bool)
            raise EnvironmentFault(f"info has no {KEY}, but the first reset's info had one. {ALWAYS}", env)
        try:
            array = np.asarray(found)
        except ValueError:  # ragged
            array = np.empty(0)
        if array.shape != (size,) or array.dtype.kind not in "biuf" or np.any(array != (array != 0)):
            raise EnvironmentFault(
                f"info has an {KEY} that is {shown(found)}. Give {size} truth values in one flat array.", env
            )
        row = array.astype(bool)
        if all(row[low:high].any() for low, high in split_bounds(self._choices)):
            return row
        if over:
            return np.ones(size, bool)
        raise EnvironmentFault(
            f"info has an {KEY} that forbids every action, and the episode did not terminate. Allow one, or return "
            "terminated=True.",
            env,
        )
