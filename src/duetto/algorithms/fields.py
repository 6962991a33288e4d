"""Which values an option can have: bounds in its annotation, and the message for a value that it cannot have.

This serves every dataclass whose fields are options: an algorithm's, a run's, a cluster's, a callback's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, get_args, get_type_hints

import numpy as np

from duetto.errors import UsageError
from duetto.networks.specs import CustomNetwork


@dataclass(frozen=True)
class Within:
    """The closed range of a number; a field annotated with it is checked when the algorithm is made."""

    low: float = -math.inf
    high: float = math.inf
    above: bool = False  # `low` itself does not belong to it
    endless: bool = False  # infinity belongs to it, and means no limit

    def holds(self, number: float) -> bool:
        """Whether the number is in the range."""
        if abs(number) == math.inf and not self.endless:
            return False
        return self.low <= number <= self.high and not (self.above and number == self.low)


Fraction = Annotated[float, Within(0.0, 1.0)]
Positive = Annotated[float, Within(0.0, above=True)]
NonNegative = Annotated[float, Within(0.0)]
Count = Annotated[int, Within(1)]
CountOrZero = Annotated[int, Within(0)]


def check_fields(options: Any) -> None:
    """Raise UsageError that says what a field must be, where one is out of range or not among its choices.

    NumPy's numbers become Python's own, and a whole number such as 1e5 becomes an int where one is wanted.
    """
    for name, hint in _hints(type(options)).items():
        if name in options.__dataclass_fields__:
            given = getattr(options, name)
            value = _plain(given, hint)
            check_field(name, value, hint)
            if value is not given:
                object.__setattr__(options, name, value)


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _plain(given: Any, hint: Any) -> Any:
    if isinstance(given, tuple):
        return tuple(_plain(one, None) for one in given)
    if isinstance(given, np.generic) or (isinstance(given, np.ndarray) and given.ndim == 0):
        given = given.item()
    whole = isinstance(given, float) and given.is_integer() and int in get_args(hint)
    return int(given) if whole else given


_WANTED = {int: "a whole number", float: "a number", tuple[int, ...]: "a tuple of whole numbers"}
_ELSEWHERE = {  # values that other libraries take
    ("temperature", "auto"): " Leave it out, or give what it begins at: it is learned by default (learn_temperature).",
}
_PLAIN = {
    bool: "true or false",
    str: "a text",
    CustomNetwork | None: "a duetto.CustomNetwork(torch=..., jax=...), or None",
}


def _is(number: Any, allowed: Any) -> bool:
    return isinstance(number, allowed) and not isinstance(number, bool)  # which Python takes for a whole number


def check_field(name: str, value: Any, hint: Any) -> None:
    """Raise UsageError where a field with this annotation cannot have the value."""
    if hint in _PLAIN and not isinstance(value, hint):
        raise UsageError(f"{name} is {value!r}; it must be {_PLAIN[hint]}.")
    for bound in (part for part in get_args(hint) if isinstance(part, Within)):
        wanted = get_args(hint)[0]
        numbers = value if wanted == tuple[int, ...] else (value,)
        allowed = int | float if wanted is float else int
        if not (isinstance(numbers, tuple) and all(_is(number, allowed) for number in numbers)):
            more = " Schedules are options of their own: learning_rate_decay='linear'." if callable(value) else ""
            more = more or _ELSEWHERE.get((name, str(value)), "")
            raise UsageError(f"{name} is {value!r}; it must be {_WANTED[wanted]}.{more}")
        if not all(bound.holds(number) for number in numbers):
            if bound.high == math.inf and math.inf in numbers:
                raise UsageError(f"{name} is {value}; it must be finite.")
            if (bound.low, bound.high) == (-math.inf, math.inf):
                raise UsageError(f"{name} is {value}; it must be {_WANTED[wanted]}.")
            at_most = "" if bound.high == math.inf else f" and at most {bound.high:g}"
            at_least = f"{'more than' if bound.above else 'at least'} {bound.low:g}"
            raise UsageError(f"{name} is {value}; it must be {at_least}{at_most}.")
    choices = get_args(hint)
    if choices and all(isinstance(choice, str) for choice in choices) and value not in choices:
        raise UsageError(f"{name} is {value!r}; it must be one of {', '.join(choices)}.")
    if CustomNetwork in choices and not isinstance(value, CustomNetwork | None):
        raise UsageError(f"{name} is {value!r}; it must be {_PLAIN[CustomNetwork | None]}.")
