"""The search space: a range or choices for each option, from the type and bounds of its field and its present value.

    Positive  0.001     logarithmic, a tenth of it to ten times        Fraction 0.99    by 1 - x: 0.9 to 0.999
    NonNegative  0.2    logarithmic, a quarter to four times           Fraction 0.005   logarithmic, as Positive
    Count  2            1 to 4                                         Fraction 0.5     0 to 1
    Count  10           logarithmic, a quarter to four times           bool, Literal    all values
    layers  64 64       halved, unchanged, doubled, one layer more     0, or nothing    not searched: it is turned off

A search file and an algorithm's `option_table` may say otherwise, both in the same form:

    {low, high}, with log: true, log: 1-x or step: doubling      a range
    {factor: 4}, with step: doubling                             a range around the present value
    {choices: [...]}                                             these values
    null                                                         not searched
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from duetto.algorithms import Algorithm
from duetto.algorithms.option_bounds import Bounds, check_field
from duetto.algorithms.suggestions import did_you_mean
from duetto.errors import UsageError

DIGITS = 3  # of a number that is tried
FROM_ONE, DOUBLING = "1-x", "doubling"
_EXAMPLE = "actor_learning_rate: {low: 1.0e-4, high: 1.0e-2, log: true}"
_FORMS = ({"low", "high"}, {"low", "high", "log"}, {"low", "high", "step"}, {"factor"}, {"factor", "step"}, {"choices"})
_SMALL = 8  # up to this, all counts are tried with the same probability
Search = Mapping[str, Any]  # how one option is searched, as a search file has it


@dataclass(frozen=True)
class Dimension:
    """One option that is searched: numbers from `low` to `high`, or choices.

    Optuna sees parameters under the name `label`, the algorithm sees values.
    """

    field: str
    choices: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool | str = False  # by the logarithm, or by that of the distance from 1 ("1-x")
    whole: bool = False  # numbers without a fraction

    @property
    def label(self) -> str:
        """The option's name in Optuna's journal, which also names a transformation."""
        return f"1 - {self.field}" if self.log == FROM_ONE else self.field

    def value(self, param: Any) -> Any:
        """Return the algorithm's value for Optuna's parameter."""
        if self.choices:
            return next(choice for choice in self.choices if as_text(choice) == param)
        if self.whole:
            return int(param)
        number = _rounded(param, self.high - self.low)
        number = 1.0 - number if self.log == FROM_ONE else number
        return min(max(round(number, 12), self.low), self.high)

    def param(self, value: Any) -> Any:
        """Return Optuna's parameter nearest to the algorithm's value; None if no choice is equal to it."""
        if self.choices:
            return next((as_text(choice) for choice in self.choices if choice == value), None)  # 1 is 1.0
        number = min(max(value, self.low), self.high)
        return round(1.0 - number, 12) if self.log == FROM_ONE else number

    def to_dict(self) -> dict[str, Any]:
        """Return the range or choices as a search file has them."""
        if self.choices:
            return {"choices": [list(choice) if isinstance(choice, tuple) else choice for choice in self.choices]}
        return {"low": self.low, "high": self.high} | ({"log": self.log} if self.log else {})


Space = dict[str, Dimension]


def as_text(value: Any) -> str:
    """Return a choice as the text that Optuna keeps."""
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def space(
    algorithm: Algorithm,
    search: Search | None = None,
    only: bool = False,
    fixed: frozenset[str] = frozenset(),
) -> Space:
    """Return the search space around the values that `algorithm` has.

    Args:
        algorithm: The center.
        search: By field: one of the forms above, "auto" (as its type or the algorithm's `option_table` says), or None.
        only: Search nothing else.
        fixed: Fields whose values the call sets.

    Raises:
        UsageError: A field does not exist, or cannot be searched so; or nothing is left to search.
    """
    search = search or {}
    for name in search:
        if name not in algorithm.options():
            raise UsageError(
                f"{algorithm.name()} has no option {name!r} to search.{did_you_mean(name, algorithm.options())}"
            )
        if name in fixed:
            raise UsageError(f"{name} is given a value and to be searched: leave one of them out.")
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
            raise UsageError(f"{name} is {value!r}, from which no range follows. Give one: {_EXAMPLE}.")
    if not dimensions:
        raise UsageError(f"Nothing is left to search. Name options in a search file, such as {_EXAMPLE}.")
    return dimensions


def first_params(space: Space, start: Mapping[str, Any]) -> dict[str, Any]:
    """Return Optuna's parameters for the first trial, nearest to the values `start`.

    A parameter is missing if no choice is equal to its value: Optuna draws it.
    """
    params = {dimension.label: dimension.param(start[name]) for name, dimension in space.items()}
    return {label: param for label, param in params.items() if param is not None}


# ---------------------------------------------------------------------------------------------------- from the type
def _from_type(value: Any, hint: Any) -> Search | None:
    kind, bound = _taken_apart(hint)
    if kind is bool:
        return {"choices": [False, True]}
    if get_origin(hint) is Literal:
        return {"choices": list(get_args(hint))} if len(get_args(hint)) > 1 else None
    if not value:  # 0 turns something off; no scale is known
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
    if value == 1.0:  # all of it, such as a target that is copied
        return None
    if value >= 0.9:
        far = min(10 * (1.0 - value), 1.0)
        return {"low": round(1.0 - far, 12), "high": round(1.0 - (1.0 - value) / 10, 12), "log": FROM_ONE}
    return {"factor": 10} if value <= 0.1 else {"low": 0.0, "high": 1.0}


def _taken_apart(hint: Any) -> tuple[Any, Bounds | None]:
    """Return the type of an annotation, and its bounds if it has any."""
    kind, *metadata = get_args(hint) if hasattr(hint, "__metadata__") else (hint,)
    return kind, next((part for part in metadata if isinstance(part, Bounds)), None)


# ---------------------------------------------------------------------------------------------------- as it is written
def _dimension(name: str, how: Any, value: Any, hint: Any) -> Dimension | None:
    """Return the dimension that a search describes; None if the present value gives no range. Raises UsageError."""
    refused = UsageError(
        f"{name} cannot be searched by {how!r}. Give low and high (with log or step: doubling), choices, factor, auto "
        f"or null: {_EXAMPLE}."
    )
    if not isinstance(how, Mapping) or set(how) not in _FORMS or how.get("step", DOUBLING) != DOUBLING:
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
        return Dimension(name, tuple(values))
    if kind not in (int, float) or not values[0] < values[1]:
        raise refused
    low, high = values
    return Dimension(name, (), low, high, how.get("log", "factor" in how), kind is int)


def _values(how: Search, value: Any, bound: Bounds | None, whole: bool) -> list[Any]:
    """Return the choices, or the two ends of a range."""
    if "choices" in how:
        return [tuple(choice) if isinstance(choice, list) else choice for choice in how["choices"]]
    if "factor" in how:
        low, high = value / how["factor"], value * how["factor"]
        if bound is not None:
            low, high = max(low, bound.low), min(high, bound.high)
        if "step" in how:
            low = value / 2 ** math.floor(math.log2(value / low))  # so that the present value is a choice
        elif whole:
            low, high = max(1, int(low)), math.ceil(high)
        else:
            low, high = _rounded(low, high - low), _rounded(high, high - low)
    else:
        low, high = how["low"], how["high"]
    if "step" in how:
        return [int(low * 2**power) for power in range(math.floor(math.log2(high / low) + 1e-9) + 1)]
    return [low, high]


def _rounded(number: float, width: float) -> float:
    """Round to DIGITS digits, or more if the range is narrow: at least to a thousandth of its width."""
    return round(number, DIGITS - 1 - math.floor(math.log10(min(abs(number) or 1.0, width or 1.0))))
