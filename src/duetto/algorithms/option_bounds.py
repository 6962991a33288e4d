"""Bounds of options in their annotations, and the error for a value out of bounds.

For every dataclass with options: an algorithm's, a run's, a cluster's, a callback's.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, get_args, get_type_hints

import numpy as np

from duetto.errors import UsageError
from duetto.networks.specs import CustomNetwork


@dataclass(frozen=True)
class Bounds:
    """The closed range of a number, or of every number of a tuple."""

    low: float = -math.inf
    high: float = math.inf
    above: bool = False  # without `low`
    endless: bool = False  # with infinity, which means no limit

    def holds(self, number: float) -> bool:
        """Return whether the number is in the range."""
        if abs(number) == math.inf and not self.endless:
            return False
        return self.low <= number <= self.high and not (self.above and number == self.low)

    def __str__(self) -> str:
        if self.low == -math.inf:
            return "a number"
        low = f"{'more than' if self.above else 'at least'} {self.low:g}"
        return low if self.high == math.inf else f"{low} and at most {self.high:g}"


Fraction = Annotated[float, Bounds(0.0, 1.0)]
Positive = Annotated[float, Bounds(0.0, above=True)]
NonNegative = Annotated[float, Bounds(0.0)]
Count = Annotated[int, Bounds(1)]
CountOrZero = Annotated[int, Bounds(0)]
Sizes = Annotated[tuple[int, ...], Bounds(1)]

_REQUIREMENTS = {
    bool: "true or false",
    str: "a text",
    int: "a whole number",
    float: "a number",
    tuple[int, ...]: "a tuple of whole numbers",
    tuple[float, float]: "two numbers, the first one lower, as (-0.5, 0.5)",
}
_hints = cache(get_type_hints)


def check_fields(options: Any) -> None:
    """Raise UsageError for the first field with an invalid value.

    NumPy's numbers become Python's, lists tuples, and a whole float such as 1e5 an int if the option is one.
    """
    hints = _hints(type(options), include_extras=True)
    for name in (field.name for field in dataclasses.fields(options)):
        plain = _plain(getattr(options, name), hints[name])
        check_field(name, plain, hints[name])
        object.__setattr__(options, name, plain)


def _plain(value: Any, hint: Any) -> Any:
    if isinstance(value, tuple | list):
        return tuple(_plain(part, None) for part in value)
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        value = value.item()
    whole = isinstance(value, float) and value.is_integer() and int in get_args(hint)
    return int(value) if whole else value


def check_field(name: str, value: Any, hint: Any) -> None:
    """Raise UsageError if a field with this annotation cannot have the value."""
    if requirement := _violated(value, hint):
        schedule = " Schedules are options: learning_rate_decay='linear'." if callable(value) else ""
        raise UsageError(f"{name} is {value!r}; it must be {requirement}.{schedule}")


def _violated(value: Any, hint: Any) -> str:
    """Return the requirement of the annotation that the value does not meet; else ""."""
    parts = get_args(hint)
    if hint in (bool, str):
        return "" if isinstance(value, hint) else _REQUIREMENTS[hint]
    if hint == tuple[float, float]:
        two = isinstance(value, tuple) and [type(end) in (int, float) for end in value] == [True, True]
        return "" if two and value[0] < value[1] else _REQUIREMENTS[hint]
    if CustomNetwork in parts:
        return "" if isinstance(value, CustomNetwork | None) else "a duetto.CustomNetwork(torch=..., jax=...), or None"
    if parts and all(isinstance(choice, str) for choice in parts):
        return "" if value in parts else f"one of {', '.join(parts)}"
    for bounds in parts:
        if isinstance(bounds, Bounds):
            numbers = value if parts[0] == tuple[int, ...] else (value,)
            kinds = (int, float) if parts[0] is float else (int,)
            if not (isinstance(numbers, tuple) and all(type(number) in kinds for number in numbers)):
                return _REQUIREMENTS[parts[0]]
            if not all(map(bounds.holds, numbers)):
                return "finite" if bounds.high == math.inf and math.inf in numbers else str(bounds)
    return ""
