"""Spaces of a network's inputs and outputs as plain data, without any environment library.

`environments.spaces` makes them from Gymnasium's spaces. They are recorded in every checkpoint, so that a trained agent
acts without the environment it was trained on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from duetto.errors import CheckpointError, UsageError
from duetto.functional import forms
from duetto.functional.forms import Each, Several

MANY = 64  # elements, above which one bound that all share is kept once
MOST_CHANNELS = 16
LEAST_SIDE = 16  # of what seems to be a picture; less is as likely a matrix, or the board of a game
MOST_ELEMENTS = 2**26  # of a space that is read from a file
DTYPES = [np.dtype(code).name for code in "?bhilqBHILQefd"]
_BOX = {"shape": Several(int), "dtype": str, "low": Several(float), "high": Several(float)}


@dataclass(frozen=True)
class Box:
    """A space of arrays of one shape.

    `low` and `high` are bounds per element, flattened in C order. Where a Box of more than 64 elements has one and the
    same bound for all, as images have, that bound is kept once. Either way of writing it makes the same Box.
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
    def seems_image(self) -> bool:
        """Whether it looks like an image, or a stack of them, but is none here: whoever gave it may have meant one."""
        rest = sorted(self.shape)[:-2]  # but the two longest
        dimensions = (2, 4) if self.dtype == "uint8" else (3, 4)
        sides = len(self.shape) in dimensions and sorted(self.shape)[-2] >= LEAST_SIDE
        return sides and max(rest, default=1) <= MOST_CHANNELS

    @property
    def channels_first(self) -> bool:
        """Whether an image lies as (channels, height, width), and not as (height, width, channels).

        The channels are the first or the last axis: the one that is strictly smaller, and at most 16.

        Raises:
            UsageError: Neither axis can be told to be the channels.
        """
        first, _, last = self.shape
        if first == last or min(first, last) > MOST_CHANNELS:
            raise UsageError(
                f"The observation space {self} has image observations of an unexpected layout. Give them as (channels, "
                f"height, width) or (height, width, channels) with at most {MOST_CHANNELS} channels, fewer than the "
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
        """Centre and half-width (size,) of the environment's own numbers, (own - centre) / half being an algorithm's.

        Where a bound is infinite nothing is scaled; with one bound numbers are counted from it, so that -1 or 1 is the
        bound as it is elsewhere.
        """
        low, high = self.bounds
        below, above = np.isfinite(low), np.isfinite(high)
        with np.errstate(invalid="ignore"):
            both = below & above
            half = np.where(both, (high - low) / 2, 1.0)
            one = np.where(below, low + 1.0, np.where(above, high - 1.0, 0.0))
            return np.where(both, (low + high) / 2, one), half

    def in_detail(self) -> str:
        """The space as text with dtype and bounds, which seldom matter."""
        low, high = (_bound_text(bound) for bound in (self.low, self.high))
        return f"{self} of {self.dtype} from {low} to {high}"

    def __str__(self) -> str:
        return f"Box{self.shape}"


def _bound_text(bound: tuple[float, ...]) -> str:
    """A bound as text: one number where all elements have the same, else the first ones."""
    if len(set(bound)) == 1:
        return f"{bound[0]:g}"
    return "[" + ", ".join(f"{one:g}" for one in bound[:8]) + (", ...]" if len(bound) > 8 else "]")


@dataclass(frozen=True)
class Discrete:
    """A space of integers 0 .. n-1. An environment's own may begin at `start`; `environments` shifts them."""

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

    An environment's own may have a `shape`, and begin at `start`; () stands for a vector and for zeros.
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
    """A space of named parts in sorted order. Nested Dict and Tuple spaces are flattened to one level, keys joined by
    "/".
    """

    parts: tuple[tuple[str, Box | Discrete | MultiDiscrete], ...]

    @property
    def size(self) -> int:
        """Length of the encoded parts side by side."""
        return sum(part.size for _, part in self.parts)

    def __str__(self) -> str:
        return "Dict(" + ", ".join(f"{name}: {part}" for name, part in self.parts) + ")"


Space = Box | Discrete | MultiDiscrete | Dict


def differing(kind: str, one: Space, other: Space) -> tuple[str, str] | None:
    """The two spaces as text, in as much detail as shows the difference; None where networks see none.

    `kind` is "observation" or "action": networks use no bounds of observations.
    """
    seen = (_without_bounds(one), _without_bounds(other)) if kind == "observation" else (one, other)
    if seen[0] == seen[1]:
        return None
    if str(one) != str(other):
        return str(one), str(other)
    if not (isinstance(one, Dict) and isinstance(other, Dict)):
        return _in_detail(one), _in_detail(other)
    pairs = [pair for pair in zip(one.parts, other.parts, strict=True) if pair[0] != pair[1]]
    sides = [", ".join(f"{name}: {_in_detail(part)}" for name, part in side) for side in zip(*pairs, strict=True)]
    return f"Dict({sides[0]})", f"Dict({sides[1]})"


def _without_bounds(space: Space) -> Space:
    if isinstance(space, Dict):
        return Dict(tuple((name, _without_bounds(part)) for name, part in space.parts))  # type: ignore[arg-type]
    return replace(space, low=(0.0,), high=(0.0,)) if isinstance(space, Box) else space


def _in_detail(space: Space) -> str:
    return space.in_detail() if isinstance(space, Box) else str(space)


def columns(space: Space) -> int:
    """Number of columns of an action, the parts of a Dict side by side; a choice has one."""
    match space:
        case Dict():
            return sum(columns(part) for _, part in space.parts)
        case Discrete():
            return 1
        case MultiDiscrete():
            return len(space.nvec)
    return space.size


def to_json(space: Space) -> dict[str, Any]:
    """A JSON value from which `from_json` makes the same space."""
    kind = type(space).__name__
    if isinstance(space, Dict):
        return {"kind": kind, "parts": {name: to_json(part) for name, part in space.parts}}
    return {"kind": kind} | {name: list(v) if isinstance(v, tuple) else v for name, v in vars(space).items()}


def from_json(value: dict[str, Any]) -> Space:
    """The space that `to_json` wrote. Raises CheckpointError where the value is no space, or has too many elements."""
    forms.check(value, {"kind": str}, "a space")
    if value["kind"] == "Dict":
        forms.check(value, {"parts": Each({"kind": str})}, "a space")
        parts = tuple((name, from_json(part)) for name, part in value["parts"].items())
        if any(isinstance(part, Dict) for _, part in parts):
            raise CheckpointError("A space in the checkpoint is a Dict inside a Dict, which none of Duetto's is.")
        return Dict(parts)  # type: ignore[arg-type]
    return _plain_from_json(value)


def _plain_from_json(value: dict[str, Any]) -> Box | Discrete | MultiDiscrete:
    match value["kind"]:
        case "Box":
            forms.check(value, _BOX, "a space")
            space: Any = Box(tuple(value["shape"]), value["dtype"], tuple(value["low"]), tuple(value["high"]))
            bounds = (len(value["low"]), len(value["high"]))
            possible = value["dtype"] in DTYPES and all(length in (1, space.size) for length in bounds)
        case "Discrete":
            forms.check(value, {"n": int} | ({"start": forms.INTEGER} if "start" in value else {}), "a space")
            space, possible = Discrete(value["n"], value.get("start", 0)), value["n"] > 0
        case "MultiDiscrete":
            lists = {"nvec": int, "shape": int, "start": forms.INTEGER}
            forms.check({"shape": [], "start": []} | value, {n: Several(form) for n, form in lists.items()}, "a space")
            space = MultiDiscrete(*(tuple(value.get(name, ())) for name in lists))
            whole = math.prod(space.shape) == len(space.nvec) or not space.shape
            possible = whole and len(space.start) in (0, len(space.nvec)) and all(space.nvec)
        case kind:
            raise CheckpointError(f"The checkpoint has a space of the kind {kind!r}, which this Duetto does not know.")
    if not possible or space.size > MOST_ELEMENTS:
        raise CheckpointError(f"The checkpoint has a space that cannot be: {str(value)[:200]}.")
    return space
