"""The search space: a range or choices for each option, from its type, bounds and current value.

The table lists types, each with a current value and the range or choices:

    Positive  0.001     logarithmic, a tenth to ten times              Fraction 0.99    0.9, 0.97, 0.99, 0.9967, 0.999
    NonNegative  0.2    logarithmic, a quarter to four times           Fraction 0.005   logarithmic, as Positive
    Count  2            1 to 4                                         Fraction 0.5     0 to 1
    Count  10           logarithmic, a quarter to four times           bool, Literal    all values
    layers  64 64       halved, unchanged, doubled, one layer more     0 or None        not searched: the option is off

A search file and an algorithm's `option_table` may override this table, in one of these forms:

    {low, high, log: true}         a logarithmic range; without log, it is linear
    {factor: 4}                    a quarter of the current value to four times
    {factor: 4, step: doubling}    in this range, only the current value times powers of 2
    {choices: [...]}               these values
    null                           not searched
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from duetto.algorithms import Algorithm
from duetto.algorithms.options import Bounds, check_field
from duetto.algorithms.suggestions import did_you_mean
from duetto.errors import UsageError

_EXAMPLE = "actor_learning_rate: {low: 1.0e-4, high: 1.0e-2, log: true}"
_FORMS = ({"low", "high"}, {"low", "high", "log"}, {"factor"}, {"factor", "step"}, {"choices"})
_SMALL = 8  # largest count with a linear range; larger counts have a logarithmic one
Search = Mapping[str, Any]  # how one option is searched, in the form of a search file


@dataclass(frozen=True)
class Dimension:
    """One option to search: numbers from `low` to `high`, or choices, which Optuna stores as texts."""

    choices: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    whole: bool = False  # numbers without a fraction

    def value(self, param: Any) -> Any:
        """Convert Optuna's parameter to the option's value. Fractions are rounded to four significant digits."""
        if self.choices:
            return next(choice for choice in self.choices if as_text(choice) == param)
        return int(param) if self.whole else min(max(float(f"{param:.4g}"), self.low), self.high)

    def param(self, value: Any) -> Any:
        """Convert an option's value to Optuna's parameter, clipped to the range; None if no choice equals the value."""
        if self.choices:
            return next((as_text(choice) for choice in self.choices if choice == value), None)  # 1 equals 1.0
        return min(max(value, self.low), self.high)

    def to_dict(self) -> dict[str, Any]:
        """Return the range or choices in the form of a search file."""
        if self.choices:
            return {"choices": [list(choice) if isinstance(choice, tuple) else choice for choice in self.choices]}
        return {"low": self.low, "high": self.high} | ({"log": True} if self.log else {})


Space = dict[str, Dimension]


def as_text(value: Any) -> str:
    """Return a choice as the text that Optuna stores."""
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def space(
    algorithm: Algorithm,
    search: Search | None = None,
    only: bool = False,
    fixed: frozenset[str] = frozenset(),
) -> Space:
    """Return the search space around the values of `algorithm`.

    Args:
        algorithm: The center of the search.
        search: For each field: a form of a search file, "auto" (by type or the algorithm's `option_table`), or None.
        only: Search only the fields in `search`.
        fixed: Fields that are not searched, since the user gives their values.

    Raises:
        UsageError: A field does not exist, a form does not fit the field's type, or nothing is left to search.
    """
    search = search or {}
    for name in search:
        if name not in algorithm.options():
            raise UsageError(
                f"{algorithm.name()} has no option {name!r} to search.{did_you_mean(name, algorithm.options())}"
            )
        if name in fixed:
            raise UsageError(f"{name} has a value and a search. Leave one of them out.")
    hints, declared = get_type_hints(type(algorithm), include_extras=True), type(algorithm).declared_searches()
    dimensions: Space = {}
    for name in (name for name in algorithm.options() if name not in fixed):
        how = search[name] if name in search else None if only else declared.get(name, "auto")
        if how is None:
            continue
        value, hint = getattr(algorithm, name), hints[name]
        if how == "auto":
            how = declared.get(name) or _from_type(value, hint)
        if how is not None and (dimension := _dimension(name, how, value, hint)):
            dimensions[name] = dimension
        elif name in search:
            raise UsageError(f"{name} is {value!r}, which gives no range to search. Give one: {_EXAMPLE}.")
    if not dimensions:
        raise UsageError(f"Nothing is left to search. Name options in a search file, such as {_EXAMPLE}.")
    return dimensions


# ---------------------------------------------------------------------------------------------------- from the type
def _from_type(value: Any, hint: Any) -> Search | None:
    kind, bound = _taken_apart(hint)
    if kind is bool:
        return {"choices": [False, True]}
    if get_origin(hint) is Literal:
        return {"choices": list(get_args(hint))} if len(get_args(hint)) > 1 else None
    if not value:  # 0 turns the option off, and gives no scale
        return None
    if kind == tuple[int, ...]:
        halved, doubled = tuple(max(1, units // 2) for units in value), tuple(2 * units for units in value)
        return {"choices": list(dict.fromkeys((halved, value, doubled, (*value, value[-1]))))}
    if bound is None or kind not in (int, float):
        return None
    if kind is int:
        high = int(min(max(2 * value, 4), bound.high))
        return {"low": max(1, int(bound.low)), "high": high} if value <= _SMALL else {"factor": 4}
    if bound != Bounds(0.0, 1.0):
        return {"factor": 10 if bound.above else 4} if bound.low >= 0 else None
    if value == 1.0:  # gives no scale; tau=1, for example, turns soft target updates off
        return None
    if value >= 0.9:  # scale the distance from 1
        distances = [float(f"{scale * (1 - value):.2g}") for scale in (10, 3, 1 / 3, 0.1)]
        choices = [round(1 - distance, 9) for distance in distances]
        return {"choices": [*choices[:2], value, *choices[2:]]}
    return {"factor": 10} if value <= 0.1 else {"low": 0.0, "high": 1.0}


def _taken_apart(hint: Any) -> tuple[Any, Bounds | None]:
    """Return the type of an annotation, and its bounds if it has any."""
    kind, *metadata = get_args(hint) if hasattr(hint, "__metadata__") else (hint,)
    return kind, next((part for part in metadata if isinstance(part, Bounds)), None)


# ---------------------------------------------------------------------------------------------------- from a search
def _dimension(name: str, how: Any, value: Any, hint: Any) -> Dimension | None:
    """Return the dimension that the form `how` describes; None if it is a factor and the value is 0 or None."""
    refused = UsageError(
        f"{name} cannot be searched by {how!r}. Give low and high (with log), choices, factor, auto or null: "
        f"{_EXAMPLE}."
    )
    if (
        not isinstance(how, Mapping)
        or set(how) not in _FORMS
        or how.get("step", "doubling") != "doubling"
        or not isinstance(how.get("log", False), bool)
    ):
        raise refused
    if "factor" in how and not value:
        return None
    kind, bound = _taken_apart(hint)
    try:
        values = _values(how, value, bound, kind is int)
    except (TypeError, ValueError, ArithmeticError):
        raise refused from None
    for each in values:
        check_field(name, each, hint)
    if "choices" in how or "step" in how:
        if len(values) < 2:
            raise refused
        return Dimension(tuple(values))
    if kind not in (int, float) or not values[0] < values[1]:
        raise refused
    low, high = values
    return Dimension((), low, high, how.get("log", "factor" in how), kind is int)


def _values(how: Search, value: Any, bound: Bounds | None, whole: bool) -> list[Any]:
    """Return the choices, or the two ends of a range."""
    if "choices" in how:
        return [tuple(choice) if isinstance(choice, list) else choice for choice in how["choices"]]
    if "factor" not in how:
        return [how["low"], how["high"]]
    low, high = value / how["factor"], value * how["factor"]
    if bound is not None:
        low, high = max(low, bound.low), min(high, bound.high)
    if "step" in how:
        powers = range(math.ceil(math.log2(low / value)), math.floor(math.log2(high / value)) + 1)
        return [int(value * 2.0**power) for power in powers]  # the current value is one of them
    return [max(1, int(low)), math.ceil(high)] if whole else [float(f"{low:.4g}"), float(f"{high:.4g}")]
