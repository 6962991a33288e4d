"""Spaces of a network's inputs and outputs as plain data, without any environment library.

`environments.spaces` makes them from Gymnasium's spaces. They are recorded in every checkpoint, so that a trained agent
acts without the environment it was trained on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from duetto.errors import CheckpointError, UsageError
from duetto.functional import state_schema
from duetto.functional.state_schema import DictOf, ListOf

MANY = 64  # elements above which an equal bound of all is stored once
MAX_CHANNELS = 16
MIN_IMAGE_SIDE = 16  # smaller arrays are as likely a matrix or a game board
MAX_ELEMENTS = 2**26  # of a space from a file
DTYPES = [np.dtype(code).name for code in "?bhilqBHILQefd"]
_BOX = {"shape": ListOf(int), "dtype": str, "low": ListOf(state_schema.BOUND), "high": ListOf(state_schema.BOUND)}


@dataclass(frozen=True)
class Box:
    """A space of arrays of one shape.

    `low` and `high` are bounds per element, flattened in C order. An equal bound of all elements can be given once, and
    is stored once if the Box has more than 64 elements.
    """

    shape: tuple[int, ...]
    dtype: str  # NumPy's name, "float32" or "uint8" for example
    low: tuple[float, ...]
    high: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "low", self._shortest(self.low))
        object.__setattr__(self, "high", self._shortest(self.high))

    def _shortest(self, bound: tuple[float, ...]) -> tuple[float, ...]:
        if self.size <= MANY:
            return bound * self.size if len(bound) == 1 else bound
        return bound[:1] if bound and bound.count(bound[0]) == len(bound) else bound

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def is_image(self) -> bool:
        """Whether it is a uint8 array of three dimensions."""
        return len(self.shape) == 3 and self.dtype == "uint8"

    @property
    def looks_like_image(self) -> bool:
        """Return whether it resembles an image or a stack of images but is not treated as one."""
        rest = sorted(self.shape)[:-2]  # but the two longest
        dimensions = (2, 4) if self.dtype == "uint8" else (3, 4)
        sides = len(self.shape) in dimensions and sorted(self.shape)[-2] >= MIN_IMAGE_SIDE
        return sides and max(rest, default=1) <= MAX_CHANNELS

    @property
    def channels_first(self) -> bool:
        """Return whether an image is (channels, height, width) instead of (height, width, channels).

        The channels are the first or the last axis: the strictly smaller one, at most 16.

        Raises:
            UsageError: Neither axis can be the channels.
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
        """Return center and half-width (size,): an algorithm's number is (environment's - center) / half-width.

        With one infinite bound nothing is scaled, and -1 or 1 is the finite bound; with two nothing changes.
        """
        low, high = self.bounds
        below, above = np.isfinite(low), np.isfinite(high)
        with np.errstate(invalid="ignore"):
            both = below & above
            half = np.where(both, high / 2 - low / 2, 1.0)  # high - low may overflow
            one = np.where(below, low + 1.0, np.where(above, high - 1.0, 0.0))
            return np.where(both, low / 2 + high / 2, one), half

    def __str__(self) -> str:
        return f"Box{self.shape}"


@dataclass(frozen=True)
class Discrete:
    """A space of integers 0 .. n-1. An environment's integers may start at `start`; `environments` shifts them."""

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
    """A space of vectors of integers, element i in 0 .. nvec[i]-1. MultiBinary(n) is MultiDiscrete((2,) * n).

    An environment's array may have a `shape` and start at `start`; () means a vector and zeros.
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

    Nested Dict and Tuple spaces are flattened to one level, keys joined by "/".
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
    """Return both spaces as text; None if they are equal to networks, which ignore the bounds of observations.

    `kind` is "observation" or "action".
    """
    first, second = (spell(space, bounds=kind == "action") for space in (one, other))
    return None if first == second else (first, second)


def spell(space: Space, *, bounds: bool = True) -> str:
    """Return a space as text with its dtype, unlike `str`, and with or without its bounds."""
    if isinstance(space, Dict):
        return "Dict(" + ", ".join(f"{name}: {spell(part, bounds=bounds)}" for name, part in space.parts) + ")"
    if not isinstance(space, Box):
        return str(space)
    if not bounds:
        return f"Box({space.shape}, {space.dtype})"
    low, high = (_spell_bound(bound) for bound in (space.low, space.high))
    return f"Box({space.shape}, {space.dtype}, from {low} to {high})"


def _spell_bound(bound: tuple[float, ...]) -> str:
    return f"{bound[0]:.9g}" if len(set(bound)) == 1 else str([float(f"{value:.9g}") for value in bound])


def without_part(space: Space, name: str) -> Space:
    """Return a Dict space without one of its parts; any other space as it is."""
    return Dict(tuple(part for part in space.parts if part[0] != name)) if isinstance(space, Dict) else space


def num_columns(space: Space) -> int:
    """Return the number of an action's columns: one for a choice, the sum over the parts of a Dict."""
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


def from_json(value: dict[str, Any]) -> Space:
    """Return the space that `to_json` wrote. Raises CheckpointError for an invalid or a too large one."""
    state_schema.check(value, {"kind": str}, "a space")
    if value["kind"] == "Dict":
        state_schema.check(value, {"parts": DictOf({"kind": str})}, "a space")
        parts = tuple((name, from_json(part)) for name, part in value["parts"].items())
        if any(isinstance(part, Dict) for _, part in parts):
            raise CheckpointError("A space in the checkpoint is a Dict inside a Dict, which none of Duetto's is.")
        return Dict(parts)  # type: ignore[arg-type]
    return _plain_from_json(value)


def _plain_from_json(value: dict[str, Any]) -> Box | Discrete | MultiDiscrete:
    match value["kind"]:
        case "Box":
            state_schema.check(value, _BOX, "a space")
            space: Any = Box(tuple(value["shape"]), value["dtype"], tuple(value["low"]), tuple(value["high"]))
            bounds = (len(value["low"]), len(value["high"]))
            possible = value["dtype"] in DTYPES and all(length in (1, space.size) for length in bounds)
        case "Discrete":
            state_schema.check(
                value, {"n": int} | ({"start": state_schema.INTEGER} if "start" in value else {}), "a space"
            )
            space, possible = Discrete(value["n"], value.get("start", 0)), value["n"] > 0
        case "MultiDiscrete":
            lists = {"nvec": int, "shape": int, "start": state_schema.INTEGER}
            state_schema.check(
                {"shape": [], "start": []} | value, {n: ListOf(form) for n, form in lists.items()}, "a space"
            )
            space = MultiDiscrete(*(tuple(value.get(name, ())) for name in lists))
            whole = math.prod(space.shape) == len(space.nvec) or not space.shape
            possible = whole and len(space.start) in (0, len(space.nvec)) and all(space.nvec)
        case kind:
            raise CheckpointError(f"The checkpoint has a space of the kind {kind!r}, which this Duetto does not know.")
    if not possible or space.size > MAX_ELEMENTS:
        raise CheckpointError(f"The checkpoint has a space that cannot be: {str(value)[:200]}.")
    return space
