"""Spaces of a network's inputs and outputs as plain data, without any environment library.

`environments.spaces` makes them from Gymnasium's spaces. Every checkpoint contains them, so a trained agent can act
without its environment.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from duetto.errors import CheckpointError, UsageError
from duetto.functional import state_schema
from duetto.functional.state_schema import DictOf, ListOf

MAX_CHANNELS = 16
MIN_IMAGE_SIDE = 16  # a smaller array is as likely to be a matrix or a game board
MAX_ELEMENTS = 2**26  # limit for a space that is read from a checkpoint
DTYPES = [np.dtype(code).name for code in "?bhilqBHILQefd"]


@dataclass(frozen=True)
class Box:
    """A space of arrays of one shape.

    `low` and `high` are the elements' bounds, flattened in C order. If a bound is equal for all elements, it is stored
    once.
    """

    shape: tuple[int, ...]
    dtype: str  # NumPy's name, "float32" or "uint8" for example
    low: tuple[float, ...]
    high: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            bound = getattr(self, name)
            object.__setattr__(self, name, bound[:1] if len(set(bound)) == 1 else bound)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def is_image(self) -> bool:
        """Whether the arrays are images: uint8 with three dimensions."""
        return len(self.shape) == 3 and self.dtype == "uint8"

    @property
    def looks_like_image(self) -> bool:
        """Whether the arrays resemble images or stacks of images, but networks treat them as vectors."""
        rest = sorted(self.shape)[:-2]  # the sides except the two longest
        dimensions = (2, 4) if self.dtype == "uint8" else (3, 4)
        sides = len(self.shape) in dimensions and sorted(self.shape)[-2] >= MIN_IMAGE_SIDE
        return sides and max(rest, default=1) <= MAX_CHANNELS

    @property
    def channels_first(self) -> bool:
        """Whether an image is (channels, height, width) instead of (height, width, channels).

        The channel axis is the shorter of the first and the last axis, and has at most 16 elements.

        Raises:
            UsageError: Both axes have the same length, or both have more than 16 elements.
        """
        first, _, last = self.shape
        if first == last or min(first, last) > MAX_CHANNELS:
            raise UsageError(
                f"The observation space {self} has image observations of an unexpected layout. Give them as (channels, "
                f"height, width) or (height, width, channels) with at most {MAX_CHANNELS} channels, fewer than the "
                "other side: gymnasium.wrappers.TransformObservation, ReshapeObservation and ResizeObservation help."
            )
        return first < last

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """`low` and `high` of each element, (size,) float64."""
        low, high = (np.broadcast_to(np.asarray(bound, np.float64), self.size) for bound in (self.low, self.high))
        return low, high

    @property
    def unbounded(self) -> list[int]:
        """Indices of the elements that have an infinite bound."""
        low, high = self.bounds
        return np.flatnonzero(~np.isfinite(low) | ~np.isfinite(high)).tolist()

    def units(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the center and half-width of each element's range. Algorithms use (x - center) / half-width.

        Both arrays are (size,). For an element x with an infinite bound, they are 0 and 1, so x does not change.
        """
        low, high = self.bounds
        finite = np.isfinite(low) & np.isfinite(high)
        low, high = np.where(finite, low, -1.0), np.where(finite, high, 1.0)
        return low / 2 + high / 2, high / 2 - low / 2  # high - low may overflow

    def __str__(self) -> str:
        return f"Box{self.shape}"


@dataclass(frozen=True)
class Discrete:
    """A space of integers 0 .. n-1.

    If an environment's integers begin at `start`, the package `duetto.environments` shifts them to 0 .. n-1.
    """

    n: int
    start: int = field(default=0, compare=False)

    @property
    def size(self) -> int:
        """Length of the one-hot code."""
        return self.n

    def __str__(self) -> str:
        return f"Discrete({self.n})"


@dataclass(frozen=True)
class MultiDiscrete:
    """A space of vectors of integers, element i in 0 .. nvec[i]-1; MultiBinary(n) is MultiDiscrete((2,) * n).

    An environment's array may have another `shape`, and its integers may begin at `start`. The default () means a
    vector, and integers from 0.
    """

    nvec: tuple[int, ...]
    shape: tuple[int, ...] = field(default=(), compare=False)
    start: tuple[int, ...] = field(default=(), compare=False)

    @property
    def size(self) -> int:
        """Length of the concatenated one-hot codes."""
        return sum(self.nvec)

    def __str__(self) -> str:
        return f"MultiDiscrete({list(self.nvec)})"


@dataclass(frozen=True)
class Dict:
    """A space of named parts in sorted order.

    Nested Dict and Tuple spaces are flattened to one level, and their keys joined by "/".
    """

    parts: tuple[tuple[str, Box | Discrete | MultiDiscrete], ...]

    @property
    def size(self) -> int:
        """Length of the concatenated codes of all parts."""
        return sum(part.size for _, part in self.parts)

    def __str__(self) -> str:
        return "Dict(" + ", ".join(f"{name}: {part}" for name, part in self.parts) + ")"


Space = Box | Discrete | MultiDiscrete | Dict


def describe_difference(kind: str, one: Space, other: Space) -> tuple[str, str] | None:
    """Return both spaces as text; None if networks treat them alike.

    `kind` is "observation" or "action". Networks ignore the bounds of observations.
    """
    first, second = (spell(space, bounds=kind == "action") for space in (one, other))
    return None if first == second else (first, second)


def spell(space: Space, *, bounds: bool = True) -> str:
    """Return a space as text with its dtype, which `str` omits, and optionally with its bounds."""
    if isinstance(space, Dict):
        return "Dict(" + ", ".join(f"{name}: {spell(part, bounds=bounds)}" for name, part in space.parts) + ")"
    if not isinstance(space, Box):
        return str(space)
    if not bounds:
        return f"Box({space.shape}, {space.dtype})"
    numbers = ([float(f"{value:.9g}") for value in bound] for bound in (space.low, space.high))
    low, high = (f"{bound[0]:.9g}" if len(bound) == 1 else str(bound) for bound in numbers)
    return f"Box({space.shape}, {space.dtype}, from {low} to {high})"


def without_part(space: Space, name: str) -> Space:
    """Return a Dict space without one of its parts; return any other space unchanged."""
    return Dict(tuple(part for part in space.parts if part[0] != name)) if isinstance(space, Dict) else space


def num_columns(space: Space) -> int:
    """Return the number of columns of an array of actions: one for each discrete choice and each continuous number."""
    match space:
        case Dict():
            return sum(num_columns(part) for _, part in space.parts)
        case Discrete():
            return 1
        case MultiDiscrete():
            return len(space.nvec)
    return space.size


def to_json(space: Space) -> dict[str, Any]:
    """Return a JSON value from which `from_json` makes the same space."""
    kind = type(space).__name__
    if isinstance(space, Dict):
        return {"kind": kind, "parts": {name: to_json(part) for name, part in space.parts}}
    return {"kind": kind} | {name: list(v) if isinstance(v, tuple) else v for name, v in vars(space).items()}


_NUMBERS, _INTEGERS, _BOUNDS = ListOf(int), ListOf(state_schema.INTEGER), ListOf(state_schema.BOUND)
_KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "Box": (Box, {"shape": _NUMBERS, "dtype": str, "low": _BOUNDS, "high": _BOUNDS}),
    "Discrete": (Discrete, {"n": int, "start": state_schema.INTEGER}),
    "MultiDiscrete": (MultiDiscrete, {"nvec": _NUMBERS, "shape": _NUMBERS, "start": _INTEGERS}),
}


def from_json(value: dict[str, Any]) -> Space:
    """Return the space that `to_json` wrote. Raise CheckpointError if it is invalid or too large."""
    state_schema.check(value, {"kind": str}, "a space")
    if value["kind"] == "Dict":
        state_schema.check(value, {"parts": DictOf({"kind": str})}, "a space")
        parts = tuple((name, from_json(part)) for name, part in value["parts"].items())
        if not any(isinstance(part, Dict) for _, part in parts):
            return Dict(parts)  # type: ignore[arg-type]
    elif value["kind"] in _KINDS:
        make, form = _KINDS[value["kind"]]
        state_schema.check(value, form, "a space")
        space: Space = make(*(tuple(v) if isinstance(v := value[name], list) else v for name in form))
        if _is_possible(space) and space.size <= MAX_ELEMENTS:
            return space
    raise CheckpointError(f"The checkpoint has an invalid space: {str(value)[:200]}.")


def _is_possible(space: Space) -> bool:
    match space:
        case Box():
            return space.dtype in DTYPES and {len(space.low), len(space.high)} <= {1, space.size}
        case Discrete():
            return space.n > 0
        case MultiDiscrete():
            whole = math.prod(space.shape) == len(space.nvec) or not space.shape
            return whole and len(space.start) in (0, len(space.nvec)) and all(space.nvec)
    return True
