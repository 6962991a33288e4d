"""The search space: a range or choices for each option, from the type and bounds of its field and its present value.

    Positive  0.001     logarithmic, a tenth of it to ten times        Fraction 0.99    by 1 - x: 0.9 to 0.999
    NonNegative  0.2    logarithmic, a quarter to four times           Fraction 0.005   logarithmic, as Positive
    Count  2            1 to 4                                         Fraction 0.5     0 to 1
    Count  10           logarithmic, a quarter to four times           bool, Literal    all values
    layers  64 64       halved, as they are, doubled, one layer more   0, or nothing    not searched: it is turned off

An algorithm declares in `Algorithm.tuned` what is better searched otherwise, or not at all.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from duetto.algorithms import Algorithm
from duetto.algorithms.fields import Within, check_field
from duetto.algorithms.nearest import did_you_mean
from duetto.algorithms.searching import DOUBLING, FROM_ONE, Around, Choices, Range
from duetto.errors import UsageError

DIGITS = 3  # of a number that is tried: more say nothing, and nobody reads them
_EXAMPLE = "actor_learning_rate: {low: 1.0e-4, high: 1.0e-2, log: true}"
_KEYS = ("low", "high", "log", "step", "choices")
_SMALL = 8  # a count up to this is searched one by one


@dataclass(frozen=True)
class Dimension:
    """One option that is searched. Optuna sees `param`s under the name `label`, the algorithm sees values."""

    field: str
    how: Range | Choices
    whole: bool  # numbers without a fraction

    @property
    def label(self) -> str:
        """The option's name in Optuna's journal, which also says if the value is searched transformed."""
        if isinstance(self.how, Range) and self.how.log == FROM_ONE:
            return f"1 - {self.field}"
        if isinstance(self.how, Range) and self.how.step == DOUBLING:
            return f"log2 {self.field}"
        return self.field

    def value(self, param: Any) -> Any:
        """The algorithm's value for Optuna's parameter."""
        if isinstance(self.how, Choices):
            return next(value for value in self.how.values if as_text(value) == param)
        if self.how.step == DOUBLING:
            return 2 ** int(param)
        if self.whole:
            return int(param)
        number = param if self.how.step else _rounded(param, self.how.high - self.how.low)
        number = 1.0 - number if self.how.log == FROM_ONE else number
        return min(max(round(number, 12), self.how.low), self.how.high)

    def param(self, value: Any) -> Any:
        """Optuna's parameter for the algorithm's value; the nearest if it is out of range, None if it is no choice."""
        if isinstance(self.how, Choices):
            return next((as_text(one) for one in self.how.values if one == value), None)  # 1 is 1.0
        number = min(max(value, self.how.low), self.how.high)
        if self.how.step == DOUBLING:
            return round(math.log2(number))
        if self.how.log == FROM_ONE:
            return round(1.0 - number, 12)
        if self.how.step is None:
            return number
        steps = round((number - self.how.low) / self.how.step)  # type: ignore[operator]
        return min(self.how.low + steps * self.how.step, self.how.high)  # type: ignore[operator]

    def to_dict(self) -> dict[str, Any]:
        """The range or choices as a search file has them."""
        if isinstance(self.how, Choices):
            return {"choices": [list(value) if isinstance(value, tuple) else value for value in self.how.values]}
        told = {"low": self.how.low, "high": self.how.high}
        return (
            told | ({"log": self.how.log} if self.how.log else {}) | ({"step": self.how.step} if self.how.step else {})
        )


def as_text(value: Any) -> str:
    """A choice as the text that Optuna keeps."""
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


Space = dict[str, Dimension]


def beside_the_start(space: Space, start: dict[str, Any]) -> str:
    """A sentence if the first trial cannot have the centre's values, `start` by field; "" if it has them."""
    strange = [name for name, one in space.items() if one.param(start[name]) is None]
    if strange:
        told = ", ".join(f"{name} {as_text(start[name])}" for name in strange)
        return f"No trial has the options that the search begins with: {told} is no choice. The first trial is drawn."
    first = {name: one.value(one.param(start[name])) for name, one in space.items() if isinstance(one.how, Range)}
    moved = [
        f"{name} {value:g} for {start[name]:g}"
        for name, value in first.items()
        if not math.isclose(value, start[name], rel_tol=1e-3)
    ]
    if not moved:
        return ""
    return f"The first trial is the nearest to the options that the search begins with: {', '.join(moved)}."


def space(
    algorithm: Algorithm, search: dict[str, Any] | None = None, only: bool = False, fixed: frozenset[str] = frozenset()
) -> Space:
    """The search space around the values that `algorithm` has.

    Args:
        algorithm: The centre.
        search: By field: {low, high, log, step}, {choices}, "auto" (what its type says), or None to leave it as it is.
        only: Search nothing else.
        fixed: Fields that were given a value, which they keep.

    Raises:
        UsageError: A field does not exist, or cannot be searched so; or nothing is left to search.
    """
    asked = {} if search is None else search
    if not isinstance(asked, Mapping):
        raise UsageError(
            f"search is {search!r}; it must be options by their names and how each is searched, such as "
            "{'tau': {'low': 1e-3, 'high': 0.05, 'log': True}}."
        )
    hints = get_type_hints(type(algorithm), include_extras=True)
    for name in asked:
        if name not in algorithm.options():
            raise UsageError(
                f"{algorithm.name()} has no option {name!r} to search.{did_you_mean(name, algorithm.options())}"
            )
        if name in fixed:
            raise UsageError(f"{name} is given a value and to be searched: leave one of them out.")
    declared = type(algorithm).declared_searches()
    found: Space = {}
    for name in (name for name in algorithm.options() if name not in fixed):
        value, hint = getattr(algorithm, name), hints[name]
        if name in asked:
            how = _asked(name, asked[name], value, hint, declared.get(name))
        elif only or (name in declared and declared[name] is None):
            continue
        else:
            how = _derived(value, hint, declared.get(name))
        if how is not None and (not isinstance(how, Choices) or len(how.values) > 1):
            found[name] = Dimension(name, how, _kind(hint) is int)
    if not found:
        raise UsageError(f"Nothing is left to search. Name options in a search file, such as {_EXAMPLE}.")
    return found


# ---------------------------------------------------------------------------------------------------- from the type
def _derived(value: Any, hint: Any, declared: Any) -> Range | Choices | None:
    kind, bound = _kind(hint), _bound(hint)
    if isinstance(declared, Around):
        return _around(value, declared, bound, kind is int) if value else None
    if declared is not None:
        return declared
    if kind is bool:
        return Choices((False, True))
    if get_origin(hint) is Literal:
        return Choices(get_args(hint))
    if kind == tuple[int, ...]:
        return _layers(value)
    if bound is None or not value:  # of 0, which turns something off, no scale is known
        return None
    if kind is int:
        return _count(value, bound)
    return _number(value, bound) if kind is float else None


def _kind(hint: Any) -> Any:
    return get_args(hint)[0] if hasattr(hint, "__metadata__") else hint


def _bound(hint: Any) -> Within | None:
    return next((part for part in getattr(hint, "__metadata__", ()) if isinstance(part, Within)), None)


def _number(value: float, bound: Within) -> Range | None:
    if math.isfinite(bound.high) and math.isfinite(bound.low):
        if value == bound.high:  # all of it, as a target that is copied
            return None
        if bound == Within(0.0, 1.0) and value <= 0.1:
            return _around(value, Around(10), bound)
        if bound == Within(0.0, 1.0) and value >= 0.9:
            far = min(10 * (1.0 - value), 1.0)
            return Range(round(1.0 - far, 12), round(1.0 - (1.0 - value) / 10, 12), FROM_ONE)
        return Range(bound.low, bound.high)
    return _around(value, Around(10 if bound.above else 4), bound) if bound.low >= 0 else None


def _count(value: int, bound: Within) -> Range:
    if value <= _SMALL:
        return Range(max(1, int(bound.low)), int(min(max(2 * value, 4), bound.high)))
    return _around(value, Around(4), bound, whole=True)


def _around(value: float, around: Around, bound: Within | None, whole: bool = False) -> Range:
    low, high = value / around.factor, value * around.factor
    if bound is not None:
        low, high = max(low, bound.low), min(high, bound.high)
    if around.step == DOUBLING:
        powers = (max(0, round(math.log2(low))), max(1, round(math.log2(high))))
        return Range(2 ** powers[0], 2 ** powers[1], step=DOUBLING)
    if whole:
        return Range(max(1, int(low)), math.ceil(high), log=True)
    return Range(_rounded(low, high - low), _rounded(high, high - low), log=True)


def _layers(value: tuple[int, ...]) -> Choices | None:
    if not value:
        return None
    halved, doubled = tuple(max(1, units // 2) for units in value), tuple(2 * units for units in value)
    return Choices(tuple(dict.fromkeys((halved, value, doubled, (*value, value[-1])))))


def _rounded(number: float, width: float) -> float:
    """Round to DIGITS digits, or more if the range is narrow: to a thousandth of its width at least."""
    return round(number, DIGITS - 1 - math.floor(math.log10(min(abs(number) or 1.0, width or 1.0))))


# ---------------------------------------------------------------------------------------------------- as asked for
def _asked(name: str, asked: Any, value: Any, hint: Any, declared: Any) -> Range | Choices | None:
    if asked is None:
        return None
    if asked == "auto":
        how = _derived(value, hint, declared)
        if how is None:
            raise UsageError(f"{name} is {value!r}, of which no range follows. Give one: {_EXAMPLE}.")
        return how
    if not isinstance(asked, dict) or not asked or any(key not in _KEYS for key in asked):
        raise UsageError(
            f"{name} is searched by {asked!r}; give low and high with log or step, or choices, or auto, or null to "
            f"leave it: {_EXAMPLE}."
        )
    if "choices" in asked:
        return _choices(name, asked, hint)
    how = _range(name, asked, whole=_kind(hint) is int)
    bound = _bound(hint)
    if _kind(hint) not in (int, float):
        raise UsageError(f"{name} is no number: give choices, not low and high.")
    for end in (how.low, how.high):
        if bound is not None and not bound.holds(end):
            raise UsageError(f"{name} cannot be {end:g}, an end of its range.")
    return how


def _choices(name: str, asked: dict[str, Any], hint: Any) -> Choices:
    values = asked["choices"]
    if len(asked) > 1 or not isinstance(values, list) or len(values) < 2:
        raise UsageError(f"{name} has choices {values!r}; give a list of two or more, and nothing beside it.")
    if _kind(hint) in (int, float):
        values = [_number_of(value) for value in values]
    values = [tuple(value) if isinstance(value, list) else value for value in values]
    for value in values:
        check_field(name, value, hint)
    return Choices(tuple(values))


def _range(name: str, asked: dict[str, Any], whole: bool) -> Range:
    numbers = [asked.get(end) for end in ("low", "high")]
    numbers = [_number_of(number) for number in numbers]
    form = int if whole else int | float
    if not all(isinstance(number, form) and not isinstance(number, bool) for number in numbers):
        raise UsageError(f"{name} needs low and high, {'whole numbers' if whole else 'numbers'}: {_EXAMPLE}.")
    how = Range(*numbers, asked.get("log", False), _number_of(asked.get("step")))  # type: ignore[arg-type]
    if not how.low < how.high:
        raise UsageError(f"{name} is searched from {how.low:g} to {how.high:g}: low must be below high.")
    if not (isinstance(how.log, bool) or how.log == FROM_ONE) or (how.step is not None and how.log):
        raise UsageError(f"{name} has log: {how.log} and step: {how.step}. Give log: true, log: 1-x, or a step alone.")
    if (how.log is True and how.low <= 0) or (how.log == FROM_ONE and (how.high >= 1 or how.low < 0 or whole)):
        raise UsageError(f"{name} cannot be searched by a logarithm from {how.low:g} to {how.high:g}.")
    if how.step == DOUBLING:
        if not (whole and all(end > 0 and math.log2(end).is_integer() for end in (how.low, how.high))):
            raise UsageError(f"{name} has step: doubling; that takes whole numbers from one power of two to another.")
    elif how.step is not None:
        if isinstance(how.step, bool) or not isinstance(how.step, form) or not 0 < how.step <= how.high - how.low:
            raise UsageError(f"{name} has step: {how.step}; it must be a number between 0 and high - low.")
        steps = (how.high - how.low) / how.step
        if not math.isclose(steps, round(steps), rel_tol=1e-6):
            last = how.low + math.floor(steps) * how.step
            raise UsageError(
                f"{name} has step: {how.step:g}, which does not lead from {how.low:g} to {how.high:g}. Make high "
                f"{last:g}, or give another step."
            )
    return how


def _number_of(value: Any) -> Any:
    """Turn a text such as 1e-3, which YAML does not take for a number, into one; all else stays."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def applied(algorithm: Algorithm, values: dict[str, Any]) -> Algorithm:
    """The centre with the values of a trial. Raises UsageError if they do not go together."""
    return dataclasses.replace(algorithm, **values)
