"""The search space: a range or choices for each option, from the type and bounds of its field and its present value.

    Positive  0.001     logarithmic, a tenth of it to ten times        Fraction 0.99    by 1 - x: 0.9 to 0.999
    NonNegative  0.2    logarithmic, a quarter to four times           Fraction 0.005   logarithmic, as Positive
    Count  2            1 to 4                                         Fraction 0.5     0 to 1
    Count  10           logarithmic, a quarter to four times           bool, Literal    all values
    layers  64 64       halved, unchanged, doubled, one layer more     0, or nothing    not searched: it is turned off

A search file and an algorithm's `option_table` may say otherwise, both in the same form:

    {low, high}, with log: true, log: 1-x, step: NUMBER or step: doubling      a range
    {factor: 4}, with step: doubling                                           a range around the present value
    {choices: [...]}                                                           these values
    null                                                                       not searched
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
_KEYS = ("low", "high", "log", "step", "choices", "factor")
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
    step: float | str | None = None  # from `low` on, or powers of two ("doubling")
    whole: bool = False  # numbers without a fraction

    @property
    def label(self) -> str:
        """The option's name in Optuna's journal, which also names a transformation."""
        return f"1 - {self.field}" if self.log == FROM_ONE else f"log2 {self.field}" if self.doubles else self.field

    @property
    def doubles(self) -> bool:
        """Whether only powers of two are tried."""
        return self.step == DOUBLING

    def value(self, param: Any) -> Any:
        """Return the algorithm's value for Optuna's parameter."""
        if self.choices:
            return next(choice for choice in self.choices if as_text(choice) == param)
        if self.doubles:
            return 2 ** int(param)
        if self.whole:
            return int(param)
        number = param if self.step else _rounded(param, self.high - self.low)
        number = 1.0 - number if self.log == FROM_ONE else number
        return min(max(round(number, 12), self.low), self.high)

    def param(self, value: Any) -> Any:
        """Return Optuna's parameter nearest to the algorithm's value; None if no choice is equal to it."""
        if self.choices:
            return next((as_text(choice) for choice in self.choices if choice == value), None)  # 1 is 1.0
        number = min(max(value, self.low), self.high)
        if self.doubles:
            return round(math.log2(number))
        if self.log == FROM_ONE:
            return round(1.0 - number, 12)
        if self.step is None:
            return number
        step = float(self.step)
        nearest = min(self.low + round((number - self.low) / step) * step, self.high)
        return int(nearest) if self.whole else nearest

    def to_dict(self) -> dict[str, Any]:
        """Return the range or choices as a search file has them."""
        if self.choices:
            return {"choices": [list(choice) if isinstance(choice, tuple) else choice for choice in self.choices]}
        extra = {"log": self.log, "step": self.step}
        return {"low": self.low, "high": self.high} | {name: value for name, value in extra.items() if value}


Space = dict[str, Dimension]


def as_text(value: Any) -> str:
    """Return a choice as the text that Optuna keeps."""
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def space(
    algorithm: Algorithm,
    search: Mapping[str, Any] | None = None,
    only: bool = False,
    fixed: frozenset[str] = frozenset(),
) -> Space:
    """Return the search space around the values that `algorithm` has.

    Args:
        algorithm: The center.
        search: By field: {low, high, log, step}, {factor, step}, {choices}, "auto" (as its type or the algorithm's
            `option_table` says), or None: not searched.
        only: Search nothing else.
        fixed: Fields whose values the call sets.

    Raises:
        UsageError: A field does not exist, or cannot be searched so; or nothing is left to search.
    """
    search = {} if search is None else search
    if not isinstance(search, Mapping):
        raise UsageError(
            f"search is {search!r}; it must be options by their names and how each is searched, such as "
            "{'tau': {'low': 1e-3, 'high': 0.05, 'log': True}}."
        )
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
        dimension = None if how is None else _dimension(name, how, value, hint)
        if dimension:
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
    kind, bound = _kind(hint), _bound(hint)
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
    if math.isfinite(bound.high) and math.isfinite(bound.low):
        return _between(value, bound)
    return {"factor": 10 if bound.above else 4} if bound.low >= 0 else None


def _between(value: float, bound: Bounds) -> Search | None:
    """Return how a number is searched that has a min and a max."""
    if value == bound.high:  # all of it, such as a target that is copied
        return None
    if bound == Bounds(0.0, 1.0) and value <= 0.1:
        return {"factor": 10}
    if bound == Bounds(0.0, 1.0) and value >= 0.9:
        far = min(10 * (1.0 - value), 1.0)
        return {"low": round(1.0 - far, 12), "high": round(1.0 - (1.0 - value) / 10, 12), "log": FROM_ONE}
    return {"low": bound.low, "high": bound.high}


def _kind(hint: Any) -> Any:
    return get_args(hint)[0] if hasattr(hint, "__metadata__") else hint


def _bound(hint: Any) -> Bounds | None:
    return next((part for part in getattr(hint, "__metadata__", ()) if isinstance(part, Bounds)), None)


# ---------------------------------------------------------------------------------------------------- as it is written
def _dimension(name: str, how: Any, value: Any, hint: Any) -> Dimension | None:
    """Return the dimension that a search describes; None if the present value gives no range."""
    if not isinstance(how, Mapping) or not how or any(key not in _KEYS for key in how):
        raise UsageError(
            f"{name} is searched by {how!r}; give low and high with log or step, or choices, or factor, or auto, or "
            f"null to leave it: {_EXAMPLE}."
        )
    if "choices" in how:
        return Dimension(name, _choices(name, how, hint))
    kind, bound = _kind(hint), _bound(hint)
    if kind not in (int, float):
        raise UsageError(f"{name} is no number: give choices, not low and high.")
    whole = kind is int
    if "factor" in how:
        if not value:
            return None
        how = _around(name, value, how, bound, whole)
    low, high, step = (_number_of(how.get(key)) for key in ("low", "high", "step"))
    form = int if whole else int | float
    if not (isinstance(low, form) and isinstance(high, form) and low < high):
        kinds = "whole numbers" if whole else "numbers"
        raise UsageError(f"{name} needs {kinds} low and high, low below high: {_EXAMPLE}.")
    for end in (low, high):
        if bound is not None and not bound.holds(end):
            raise UsageError(f"{name} cannot be {end:g}, an end of its range.")
    return Dimension(name, (), low, high, how.get("log", False), step, whole)


def _choices(name: str, how: Search, hint: Any) -> tuple[Any, ...]:
    values = how["choices"]
    if len(how) > 1 or not isinstance(values, list | tuple) or len(values) < 2:
        raise UsageError(f"{name} has choices {values!r}; give a list of two or more, and nothing else.")
    if _kind(hint) in (int, float):
        values = [_number_of(value) for value in values]
    values = [tuple(value) if isinstance(value, list) else value for value in values]
    for value in values:
        check_field(name, value, hint)
    return tuple(values)


def _around(name: str, value: float, how: Search, bound: Bounds | None, whole: bool) -> Search:
    """Return the range from the present value divided by a factor to that times the factor."""
    factor = _number_of(how["factor"])
    if not isinstance(factor, int | float) or factor <= 1 or set(how) - {"factor", "step"}:
        raise UsageError(f"{name} has factor: {how['factor']}; give a number above 1, and only step: doubling with it.")
    low, high = value / factor, value * factor
    if bound is not None:
        low, high = max(low, bound.low), min(high, bound.high)
    if "step" in how:
        powers = max(0, round(math.log2(low))), max(1, round(math.log2(high)))
        return {"low": 2 ** powers[0], "high": 2 ** powers[1], "step": how["step"]}
    if whole:
        return {"low": max(1, int(low)), "high": math.ceil(high), "log": True}
    return {"low": _rounded(low, high - low), "high": _rounded(high, high - low), "log": True}


def _rounded(number: float, width: float) -> float:
    """Round to DIGITS digits, or more if the range is narrow: at least to a thousandth of its width."""
    return round(number, DIGITS - 1 - math.floor(math.log10(min(abs(number) or 1.0, width or 1.0))))


def _number_of(value: Any) -> Any:
    """Turn a text such as 1e-3, which YAML reads as text, into a number; return all else unchanged."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value
