"""Gymnasium's spaces as plain data, and its observations as NumPy arrays of three dtypes.

Nested Dict and Tuple spaces become one flat level: {"camera": {"left": ...}} has the key "camera/left", a Tuple's keys
are its positions. Real numbers become float32, images and other bytes stay uint8, choices become int64 from 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from duetto.environments.faults import Fault, shown
from duetto.environments.trees import Tree, parts
from duetto.errors import DuettoError, NonFiniteError, UsageError
from duetto.networks.spaces import Box, Dict, Discrete, MultiDiscrete, Space

EXACT = 2**24  # above it float32 does not hold all whole numbers
CORRECT = "Correct the environment's observation_space, or what it gives."


class Beyond(Fault):
    """Numbers that are finite where the environment computes them, and infinite as float32."""

    def told(self, name: str, step: int, first: int = 0) -> DuettoError:
        """Return the fault as a `NonFiniteError`, which says where the run stopped."""
        return NonFiniteError(str(super().told(name, step, first)))


@dataclass(frozen=True)
class Leaf:
    """A part of an observation: where it is found, and how it is delivered."""

    name: str  # keys joined by "/"; "" where the observation is a single array
    path: tuple[Any, ...]  # keys and positions that lead to it in Gymnasium's observation
    space: Box | Discrete | MultiDiscrete
    shape: tuple[int, ...]  # Gymnasium's, of one environment
    dtype: np.dtype
    start: Any  # subtracted, so that choices begin at 0
    count: Any = None  # how many choices there are, an array for several; None for a Box
    kinds: str = "biuf"  # NumPy's letters for what becomes `dtype` and stays the same number
    own: np.dtype | None = None  # a Box's, where it holds less than `dtype`

    def find(self, obs: Any) -> Any:
        """Return this part of one environment's, or of a batched, observation."""
        for key in self.path:
            obs = obs[key]
        return obs

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of one row as delivered: MultiDiscrete and MultiBinary are flat."""
        return (len(self.space.nvec),) if isinstance(self.space, MultiDiscrete) else self.shape

    def describe(self) -> str:
        """Return the part's name for a message: "observation" or "observation camera/left"."""
        return f"observation {self.name}" if self.name else "observation"

    def read(self, obs: Any, env: int | None, rows: tuple[int, ...] = ()) -> np.ndarray:
        """Read this part of an observation, `rows` in front of its shape; Fault where it is no value of its space.

        Boxes may be left, as many environments do; an image's bytes and choices may not.
        """
        try:
            found = self.find(obs)
            value = np.asarray(found)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise Fault(f"it gave no {self.describe()} ({type(error).__name__}). {CORRECT}", env) from error
        shape = (*rows, *self.shape) if rows else self.shape
        if value.shape != shape:
            what = f"of shape {value.shape}" if value.dtype.kind in "biuf" else f"that is {shown(found)}"
            raise Fault(f"it gave an {self.describe()} {what}, its space says {shape}. {CORRECT}", env)
        if value.dtype.kind not in self.kinds:
            raise Fault(
                f"it gave an {self.describe()} that is {shown(found)}, its space wants {self.dtype}. {CORRECT}", env
            )
        if self.is_left(value):
            raise Fault(f"it gave an {self.describe()} that is not in its space: {value}. {CORRECT}", env)
        return value

    def beyond(self, value: np.ndarray) -> np.ndarray:
        """Mark the numbers that are finite but too large for float32."""
        return np.isfinite(value) & (np.abs(value) > np.finfo(np.float32).max)

    def too_large(self, value: np.ndarray) -> str:
        """Return the beginning of a message about a value with numbers too large for float32."""
        return f"the {self.describe()} is beyond {np.finfo(np.float32).max:.2g}, where float32 ends ({value})."

    def is_left(self, value: np.ndarray) -> bool:
        """Whether numbers are outside of the space; always False for Boxes that may be left."""
        if self.count is None and ("f" in self.kinds or value.dtype == self.dtype):
            return False
        first, count = 0 if self.start is None else self.start, 256 if self.count is None else self.count
        return not ((value >= first) & (value < first + count)).all()


class Layout:
    """The layout of one Gymnasium space's observations in our arrays.

    Raises:
        UsageError: The space, or a part of it, is of a kind that no network takes (Text, Graph, Sequence ...).
    """

    def __init__(self, space: gymnasium.Space[Any]) -> None:
        self.leaves: list[Leaf] = sorted(_leaves(space, ()), key=lambda leaf: leaf.name)
        self.single: bool = not isinstance(space, gymnasium.spaces.Dict | gymnasium.spaces.Tuple)
        names = [leaf.name for leaf in self.leaves]
        if not names or len(set(names)) < len(names):
            raise UsageError(f"The space {space} has no parts, or two of the same name. Rename its keys.")

    @property
    def space(self) -> Space:
        """The space as plain data."""
        if self.single:
            return self.leaves[0].space
        return Dict(tuple((leaf.name, leaf.space) for leaf in self.leaves))

    def empty(self, n: int) -> Tree:
        """Return uninitialised arrays for n environments."""
        if self.single:
            leaf = self.leaves[0]
            return np.empty((n, *leaf.row_shape), leaf.dtype)
        return {leaf.name: np.empty((n, *leaf.row_shape), leaf.dtype) for leaf in self.leaves}

    def write(self, tree: Tree, row: int, obs: Any) -> None:
        """Copy one environment's observation into a row; Fault where it is not in its space."""
        for leaf in self.leaves:
            value = leaf.read(obs, row)
            target = tree if isinstance(tree, np.ndarray) else tree[leaf.name]
            if leaf.start is not None:
                target[row] = (value.astype(np.int64, copy=False) - leaf.start).reshape(leaf.row_shape)
            elif value.dtype == target.dtype:
                target[row] = value
            else:
                target[row] = _cast(leaf, value, row)

    def check(self, obs: Any, rows: tuple[int, ...] = ()) -> None:
        """Raise Fault where an observation, or one of several rows, is not in its space."""
        for leaf in self.leaves:
            leaf.read(obs, None, rows)

    def check_kept(self, obs: Any) -> None:
        """Raise Fault where a Box is given numbers that its own dtype, which processes exchange, does not hold."""
        for leaf in self.leaves:
            value = np.asarray(leaf.find(obs)) if leaf.own else None
            if value is None or value.dtype == leaf.own:
                continue
            with np.errstate(invalid="ignore", over="ignore"):
                kept = value.astype(leaf.own)
            if not np.array_equal(kept, value, equal_nan=True):
                raise Fault(
                    f"it gave an {leaf.describe()} ({value}) of which its space's dtype, {leaf.own}, holds no more "
                    f"than {kept}, and that is all that comes through between processes. Give the space a dtype that "
                    "holds it, such as float32.",
                    None,
                )

    def batch(self, obs: Any) -> Tree:
        """Copy a batched Gymnasium observation, (N, ...) in every part, into our arrays."""
        arrays = {leaf.name: self._convert(leaf, leaf.find(obs)) for leaf in self.leaves}
        return arrays[""] if self.single else arrays

    @staticmethod
    def _convert(leaf: Leaf, value: Any) -> np.ndarray:
        if leaf.start is None:
            return _cast(leaf, np.asarray(value), None)
        value = np.asarray(value).astype(np.int64, copy=False) - leaf.start
        return np.array(value.reshape(len(value), *leaf.row_shape), leaf.dtype)


def _cast(leaf: Leaf, value: np.ndarray, env: int | None) -> np.ndarray:
    """Copy a Box's numbers to the dtype that is learned from: of one environment or, without `env`, a row for each."""
    try:
        with np.errstate(over="raise"):
            return np.array(value, leaf.dtype)
    except FloatingPointError as error:
        if env is None and value.shape != leaf.shape:
            env = int(np.flatnonzero(leaf.beyond(value).reshape(len(value), -1).any(axis=1))[0])
            value = value[env]
        raise Beyond(f"{leaf.too_large(value)} Scale the environment's observations.", env) from error


def from_gymnasium(space: gymnasium.Space[Any]) -> Space:
    """Convert a space to plain data. Raises UsageError for kinds that no network takes (Text, Graph, Sequence ...)."""
    return Layout(space).space


def far_from_zero(obs: Tree) -> list[str]:
    """Return a sentence for each part with numbers so large that float32 does not even hold all whole ones."""
    said = []
    for name, part in parts(obs):
        if part.dtype == np.float32 and (largest := float(np.abs(part).max(initial=0))) > EXACT:
            said.append(
                f"The observation{f' {name}' if name else ''} reaches {largest:.6g}, where float32, which networks "
                f"take, tells numbers apart that are {np.spacing(np.float32(largest)):g} from each other, and no "
                "closer ones. Subtract an offset or scale it in a wrapper; duetto check says what is lost."
            )
    return said


def flatten_observation(space: gymnasium.Space[Any], obs: Any) -> Tree:
    """Copy batched observations of a single environment's `space`, leading axis N, to an array or flat dict of arrays.

    The result never shares memory with `obs`.
    """
    return Layout(space).batch(obs)


def _leaves(space: gymnasium.Space[Any], path: tuple[Any, ...]) -> Iterator[Leaf]:
    name = "/".join(str(key) for key in path)
    where = f' (part "{name}")' if name else ""
    if _holds_nothing(space):
        raise UsageError(f"The space {space}{where} holds nothing. Give it a size of at least 1.")
    match space:
        case gymnasium.spaces.Dict():
            for key, part in space.spaces.items():
                yield from _leaves(part, (*path, key))
        case gymnasium.spaces.Tuple():
            for position, part in enumerate(space.spaces):
                yield from _leaves(part, (*path, position))
        case gymnasium.spaces.Box():
            dtype = np.dtype(np.uint8 if space.dtype == np.uint8 else np.float32)
            low, high = (tuple(bound.ravel().astype(float).tolist()) for bound in (space.low, space.high))
            plain = Box(space.shape, dtype.name, low, high)
            kinds, own = "biu" if dtype == np.uint8 else "biuf", np.dtype(space.dtype)
            less = own if own.kind in "biu" or own == np.float16 else None
            yield Leaf(name, path, plain, space.shape, dtype, None, kinds=kinds, own=less)
        case gymnasium.spaces.Discrete():
            start, n = int(space.start), int(space.n)
            yield Leaf(name, path, Discrete(n, start), (), np.dtype(np.int64), start or None, n, "biu")
        case gymnasium.spaces.MultiDiscrete():
            nvec, start = (tuple(int(n) for n in array.ravel()) for array in (space.nvec, space.start))
            plain = MultiDiscrete(nvec, space.nvec.shape, start)
            yield Leaf(name, path, plain, space.nvec.shape, np.dtype(np.int64), space.start, space.nvec, "biu")
        case gymnasium.spaces.MultiBinary():
            shape = tuple(int(n) for n in space.shape)
            nvec = (2,) * int(np.prod(shape))
            yield Leaf(name, path, MultiDiscrete(nvec, shape), shape, np.dtype(np.int64), 0, 2, "biu")
        case _:
            raise UsageError(
                f"The space {space}{where} is not supported. Supported are Box, Discrete, MultiDiscrete, MultiBinary, "
                "Dict and Tuple; convert it with a wrapper from gymnasium.wrappers."
            )


def _holds_nothing(space: gymnasium.Space[Any]) -> bool:
    if isinstance(space, gymnasium.spaces.Discrete):
        return int(space.n) < 1
    return 0 in (space.shape or ()) or (isinstance(space, gymnasium.spaces.MultiDiscrete) and int(space.nvec.min()) < 1)


def to_gymnasium(
    space: Space, dtype: np.dtype | None = None, dtypes: Mapping[str, np.dtype] | None = None
) -> gymnasium.Space[Any]:
    """Return a Gymnasium space with the same values, which `from_gymnasium` converts to the same plain space.

    `dtype` is that of the Gymnasium space that it once came from, since plain ones have float32, uint8 or int64 alone;
    `dtypes` are those of the parts of a Dict, by name.
    """
    match space:
        case Box():
            own = dtype or np.dtype(space.dtype)
            bounds = (np.broadcast_to(_bound(bound, own), space.size) for bound in (space.low, space.high))
            low, high = (bound.reshape(space.shape) for bound in bounds)
            return gymnasium.spaces.Box(low, high, space.shape, own.type)
        case Discrete():
            return gymnasium.spaces.Discrete(space.n, start=space.start)
        case MultiDiscrete():
            shape = space.shape or (len(space.nvec),)
            start = np.reshape(space.start or (0,) * len(space.nvec), shape)
            kind: Any = (dtype or np.dtype(np.int64)).type
            return gymnasium.spaces.MultiDiscrete(np.reshape(space.nvec, shape), dtype=kind, start=start)
        case Dict():
            own = dtypes or {}
            return gymnasium.spaces.Dict({name: to_gymnasium(part, own.get(name)) for name, part in space.parts})


def _bound(values: tuple[float, ...], dtype: np.dtype) -> np.ndarray:
    """Return a bound in this dtype, clipped to its limits: the greatest int64 was rounded up as a float64."""
    if not np.issubdtype(dtype, np.integer):
        return np.array(values, dtype)
    limits = np.iinfo(dtype)
    return np.array([min(max(int(value), limits.min), limits.max) for value in values], dtype)
