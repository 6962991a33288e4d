"""Convert Gymnasium's spaces to plain data, and its observations to NumPy arrays of three dtypes.

Nested Dict and Tuple spaces become flat: {"camera": {"left": ...}} has the key "camera/left", and a Tuple's keys are
its positions. Real numbers become float32, bytes stay uint8, discrete values become int64 from 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from duetto.environments.errors import EnvironmentFault, shown
from duetto.environments.obs_tree import Tree, array
from duetto.errors import UsageError
from duetto.networks.spaces import Box, Dict, Discrete, MultiDiscrete, Space

CORRECT = "Correct the environment's observation_space or its observations."


@dataclass(frozen=True)
class Leaf:
    """A part of a space: its place in Gymnasium's space, and its form in Duetto."""

    name: str  # keys joined by "/"; "" if the observation is a single array
    path: tuple[Any, ...]  # keys and positions that lead to it in Gymnasium's observation
    space: Box | Discrete | MultiDiscrete
    shape: tuple[int, ...]  # in Gymnasium's observation of one environment
    dtype: np.dtype
    start: Any  # subtracted from discrete values, so that they start at 0; None: nothing to subtract
    count: Any = None  # number of discrete values, an array for MultiDiscrete; None for a Box

    def find(self, obs: Any) -> Any:
        """Return this part of a single or a batched observation."""
        for key in self.path:
            obs = obs[key]
        return obs

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape in Duetto's observation of one environment: MultiDiscrete and MultiBinary are flat."""
        return (len(self.space.nvec),) if isinstance(self.space, MultiDiscrete) else self.shape

    def describe(self) -> str:
        """Return the part's name for a message: "observation" or "observation camera/left"."""
        return f"observation {self.name}" if self.name else "observation"

    def read(self, obs: Any, env: int | None, rows: tuple[int, ...] = ()) -> np.ndarray:
        """Return this part of an observation; in a batched observation, its shape begins with `rows`.

        Values outside a Box's bounds are accepted, since many environments return them. A uint8 Box accepts 0 to
        255. Values outside other spaces are not accepted.

        Raises:
            EnvironmentFault: The part is missing, has another shape or dtype, or is not in its space.
        """
        try:
            found = self.find(obs)
            value = array(found)
        except (KeyError, IndexError, TypeError, ValueError, RuntimeError) as error:
            raise EnvironmentFault(f"it gave no {self.describe()} ({type(error).__name__}). {CORRECT}", env) from error
        shape = (*rows, *self.shape) if rows else self.shape
        if value.shape != shape:
            problem = f"of shape {value.shape}" if value.dtype.kind in "biuf" else f"that is {shown(found)}"
            problem += f", its space says {shape}"
        elif value.dtype != self.dtype and value.dtype.kind not in ("biuf" if self.dtype.kind == "f" else "biu"):
            problem = f"that is {shown(found)}, its space wants {self.dtype}"
        elif self.is_outside(value):
            problem = f"that is not in its space: {value}"
        else:
            return value
        raise EnvironmentFault(f"it gave an {self.describe()} {problem}. {CORRECT}", env)

    def is_outside(self, value: np.ndarray) -> bool:
        """Return whether any number is outside the space. A Box is checked only if it is uint8, against 0 to 255."""
        if self.count is None and (self.dtype.kind == "f" or value.dtype == self.dtype):
            return False
        first, count = 0 if self.start is None else self.start, 256 if self.count is None else self.count
        return not ((value >= first) & (value < first + count)).all()


class Layout:
    """Converts observations of a Gymnasium space to Duetto's arrays.

    Raises:
        UsageError: No network supports the space or a part of it (Text, Graph, Sequence).
    """

    def __init__(self, space: gymnasium.Space[Any]) -> None:
        self.leaves: list[Leaf] = sorted(_leaves(space, ()), key=lambda leaf: leaf.name)
        self.single: bool = not isinstance(space, gymnasium.spaces.Dict | gymnasium.spaces.Tuple)
        names = [leaf.name for leaf in self.leaves]
        reserved = not self.single and any(name[:1] in "/" for name in names)  # such as `masks.MASK`
        if not names or reserved or len(set(names)) < len(names):
            cause = "no parts, two of the same name, or a name that is empty or starts with /"
            raise UsageError(f"The space {space} has {cause}. Rename its keys.")

    @property
    def space(self) -> Space:
        """The space as plain data."""
        if self.single:
            return self.leaves[0].space
        return Dict(tuple((leaf.name, leaf.space) for leaf in self.leaves))

    def empty(self, n: int) -> Tree:
        """Return uninitialized arrays for n environments."""
        arrays = {leaf.name: np.empty((n, *leaf.row_shape), leaf.dtype) for leaf in self.leaves}
        return arrays[""] if self.single else arrays

    def write(self, tree: Tree, rows: Mapping[Any, Any], batch: tuple[int, ...] = ()) -> None:
        """Copy observations into the rows of `tree`.

        `rows` maps each row to an environment's observation, or `...` to a batched observation, whose first axes are
        `batch`. Numbers too large for float32 become infinite.

        Raises:
            EnvironmentFault: An observation is not in its space.
        """
        with np.errstate(over="ignore"):
            for row, obs in rows.items():
                for leaf in self.leaves:
                    value = leaf.read(obs, None if batch else row, batch)
                    if leaf.start is not None:
                        value = (value.astype(np.int64, copy=False) - leaf.start).reshape((*batch, *leaf.row_shape))
                    (tree if isinstance(tree, np.ndarray) else tree[leaf.name])[row] = value

    def batch(self, obs: Any, n: int) -> Tree:
        """Return new arrays with a batched Gymnasium observation, which has (n, ...) in every part."""
        self.write(tree := self.empty(n), {...: obs}, (n,))
        return tree


def from_gymnasium(space: gymnasium.Space[Any]) -> Space:
    """Convert a space to plain data. Raises UsageError if no network supports it (Text, Graph, Sequence)."""
    return Layout(space).space


def _leaves(space: gymnasium.Space[Any], path: tuple[Any, ...]) -> Iterator[Leaf]:
    name = "/".join(str(key) for key in path)
    where = f' (part "{name}")' if name else ""
    if 0 in (space.shape or ()):
        raise UsageError(f"The space {space}{where} is empty. Give it a size of at least 1.")
    match space:
        case gymnasium.spaces.Dict():
            for key, part in space.spaces.items():
                yield from _leaves(part, (*path, key))
        case gymnasium.spaces.Tuple():
            for position, part in enumerate(space.spaces):
                yield from _leaves(part, (*path, position))
        case gymnasium.spaces.Box():
            dtype = np.dtype(np.uint8 if space.dtype == np.uint8 else np.float32)
            bounds = (tuple(map(float, bound.ravel().tolist())) for bound in (space.low, space.high))
            plain = Box(space.shape, dtype.name, *bounds)
            yield Leaf(name, path, plain, space.shape, dtype, None)
        case gymnasium.spaces.Discrete():
            start, n = int(space.start), int(space.n)
            yield Leaf(name, path, Discrete(n, start), (), np.dtype(np.int64), start or None, n)
        case gymnasium.spaces.MultiDiscrete():
            nvec, start = (tuple(array.ravel().tolist()) for array in (space.nvec, space.start))
            plain = MultiDiscrete(nvec, space.nvec.shape, start)
            first, count = space.start.astype(np.int64), space.nvec.astype(np.int64)
            yield Leaf(name, path, plain, space.nvec.shape, np.dtype(np.int64), first, count)
        case gymnasium.spaces.MultiBinary():
            yield from _leaves(gymnasium.spaces.MultiDiscrete(np.full(space.shape, 2)), path)
        case _:
            raise UsageError(
                f"The space {space}{where} is not supported. Supported are Box, Discrete, MultiDiscrete, MultiBinary, "
                "Dict and Tuple; convert it with a wrapper from gymnasium.wrappers."
            )


def to_gymnasium(
    space: Space, dtype: np.dtype | None = None, dtypes: Mapping[str, np.dtype] | None = None
) -> gymnasium.Space[Any]:
    """Return a Gymnasium space that `from_gymnasium` converts to this plain space.

    `dtype` is the dtype of the original Gymnasium space, because plain spaces have only float32, uint8 or int64.
    `dtypes` has the original dtypes of a Dict's parts, by name.
    """
    match space:
        case Box():
            own = dtype or np.dtype(space.dtype)
            low, high = (bound.astype(own).reshape(space.shape) for bound in space.bounds)
            return gymnasium.spaces.Box(low, high, space.shape, own.type)
        case Discrete():
            other: Any = {} if dtype is None or dtype == np.int64 else {"dtype": dtype.type}  # newer Gymnasium only
            return gymnasium.spaces.Discrete(space.n, start=space.start, **other)
        case MultiDiscrete():
            shape = space.shape or (len(space.nvec),)
            start = np.reshape(space.start or (0,) * len(space.nvec), shape)
            kind: Any = (dtype or np.dtype(np.int64)).type
            return gymnasium.spaces.MultiDiscrete(np.reshape(space.nvec, shape), dtype=kind, start=start)
        case Dict():
            own = dtypes or {}
            return gymnasium.spaces.Dict({name: to_gymnasium(part, own.get(name)) for name, part in space.parts})
