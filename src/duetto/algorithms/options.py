"""Options: their bounds, their groups in `--help`, and how `duetto tune` searches them.

Annotations such as `Positive` give the bounds of an option of an algorithm, a run, a cluster or a callback.

An algorithm's class gives groups and searches in its class variable `option_table`:

    option_table: ClassVar[OptionTable] = {
        "members": Option(search={"low": 2, "high": 10}),
        **in_group("replay", "priority_exponent", "priority_epsilon", needs="prioritized"),
    }

An option without an entry is in the algorithm's own group of `--help`, and its type determines its range for `tune`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from inspect import get_annotations
from typing import Annotated, Any, ClassVar, Literal, Self, get_args, get_type_hints

import numpy as np

from duetto.algorithms.suggestions import did_you_mean
from duetto.errors import UsageError
from duetto.networks.specs import CustomNetwork


# ---------------------------------------------------------------------------------------------------- bounds
@dataclass(frozen=True)
class Bounds:
    """The range of a number, or of every number of a tuple, including its ends; `above` excludes `low`."""

    low: float = -math.inf
    high: float = math.inf
    above: bool = False  # exclude `low`

    def holds(self, number: float) -> bool:
        """Return whether the number is finite and in the range."""
        return self.low <= number <= self.high and abs(number) < math.inf and not (self.above and number == self.low)

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
    tuple[float, float]: "two numbers, the lower one first, such as (-0.5, 0.5)",
}
_hints = cache(get_type_hints)


def check_fields(options: Any) -> None:
    """Raise UsageError for the first field with an invalid value.

    Before the check, NumPy's numbers become Python's, lists become tuples, and for an integer option a whole float such
    as 1e5 becomes an int.
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
    if isinstance(value, float) and value.is_integer() and int in get_args(hint):
        return int(value)
    with suppress(OverflowError):
        return float(value) if type(value) is int and float in get_args(hint) else value
    return value


def check_field(name: str, value: Any, hint: Any) -> None:
    """Raise UsageError if the annotation `hint` does not allow the value."""
    if requirement := _violated(value, hint):
        schedule = (
            " Functions are not accepted; a schedule is an option, such as learning_rate_decay='linear'."
            if callable(value) and not isinstance(value, type)
            else ""
        )
        raise UsageError(f"{name} is {value!r}; it must be {requirement}.{schedule}")


def _violated(value: Any, hint: Any) -> str:
    """Return the annotation's requirement that the value violates; "" if there is none."""
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


# ---------------------------------------------------------------------------------------------------- declarations
Group = Literal["", "exploration", "networks", "optimizer", "replay", "recurrence", "demonstrations"]
"""Groups of `--help` in order; "" is the algorithm's own group."""

Search = Mapping[str, Any] | Literal["auto"] | None
"""Values that `duetto tune` tries: a range as in a search file (`tools.tune.space`), or "auto", a range that the
option's type determines. With None, `duetto tune` does not search the option by default."""


@dataclass(frozen=True)
class Option:
    """Group, prerequisite and search of an option."""

    group: Group = ""
    needs: str = ""  # an option that must be on ("recurrent"), or have one of the values ("exploration=linear,ladder")
    rare: bool = False  # only `--help-all` shows it
    search: Search = "auto"

    def is_enabled(self, kind: type[Options]) -> bool:
        """Return whether the default values of `kind` satisfy this option's `needs`."""
        name, _, values = self.needs.partition("=")
        default = kind.__dataclass_fields__[name].default if name else True
        return default in values.split(",") if values else default not in (False, "none", "off", "constant", 0)


OptionTable = Mapping[str, Option]


def in_group(group: Group, *names: str, needs: str = "", rare: bool = False, search: Search = None) -> OptionTable:
    """Return entries for the options `names` of a group. `duetto tune` searches them only if `search` is given."""
    return dict.fromkeys(names, Option(group, needs, rare, search))


class Options:
    """Base of frozen dataclasses with options: checks, groups of `--help`, and searches.

    Attributes:
        option_table: Entries for options, usually for those that this class adds. A subclass can replace an entry.
    """

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]  # of subclasses
    option_table: ClassVar[OptionTable] = {}

    def __new__(cls, *args: Any, **options: Any) -> Self:
        """Create an instance.

        Raises:
            UsageError: A hyperparameter is unknown or given without its name, or the class sets an undeclared option.
        """
        if args:
            raise UsageError(
                f"{cls.__name__} takes only hyperparameters, by name; no policy and no environment: "
                f"{cls.__name__}({cls.options()[0]}=...). Then call duetto.train({cls.__name__}(...), environment)."
            )
        check_declared_options(cls)
        cls._check_known(options)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        check_fields(self)

    @classmethod
    def _check_known(cls, options: Iterable[str]) -> None:
        for name in options:
            if name not in cls.options():
                raise UsageError(f"{cls.name()} has no hyperparameter {name!r}.{did_you_mean(name, cls.options())}")

    @classmethod
    def name(cls) -> str:
        """Return the algorithm's name on the command line and in a run's folder."""
        return cls.__name__.lower()

    @classmethod
    def options(cls) -> list[str]:
        """Return the names of all hyperparameters."""
        return [field.name for field in dataclasses.fields(cls)]

    @classmethod
    def declared_options(cls) -> OptionTable:
        """Return each option's entry in `option_table`; a class overrides entries of its bases."""
        tables = [vars(kind).get("option_table", {}) for kind in cls.__mro__]
        return {name: next((table[name] for table in tables if name in table), Option()) for name in cls.options()}

    @classmethod
    def option_groups(cls) -> dict[str, tuple[str, ...]]:
        """Return the names of the options by the title of their group; each option is in one group."""
        groups: dict[str, tuple[str, ...]] = dict.fromkeys(get_args(Group), ())
        for name, entry in cls.declared_options().items():
            groups[entry.group] += (name,)
        return {group or cls.__name__: options for group, options in groups.items() if options}

    @classmethod
    def rare_options(cls) -> frozenset[str]:
        """Return the options that only `--help-all` shows, because they are rare or have no effect by default."""
        table = cls.declared_options().items()
        return frozenset(name for name, entry in table if entry.rare or not entry.is_enabled(cls))

    @classmethod
    def declared_searches(cls) -> Mapping[str, Search]:
        """Return all searches except "auto", by option. `duetto tune` does not search options with None by default."""
        table = cls.declared_options().items()
        searches: dict[str, Search] = {name: entry.search if entry.is_enabled(cls) else None for name, entry in table}
        return {name: search for name, search in searches.items() if search != "auto"}

    def with_options(self, **options: Any) -> Self:
        """Return a copy with some hyperparameters changed. Raises UsageError for an unknown name."""
        self._check_known(options)
        return dataclasses.replace(self, **options)

    def custom_networks(self) -> dict[str, CustomNetwork]:
        """Return the custom networks by field name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, CustomNetwork)}


@cache
def check_declared_options(kind: type[Options]) -> None:
    """Raise UsageError if a class sets an option without a type, or has options and is not a dataclass."""
    known = getattr(kind, "__dataclass_fields__", {})
    for base in kind.__mro__:
        annotations = get_annotations(base)
        own = [name for name, annotation in annotations.items() if "ClassVar" not in str(annotation)]
        untyped = [name for name in vars(base) if name in known and name not in annotations]
        if base is not object and (untyped or (own and "__dataclass_params__" not in vars(base)) or not known):
            raise UsageError(
                f"{base.__qualname__} sets {', '.join(untyped or own) or 'options'} without declaring an option. Write "
                "`name: type = value`, and @dataclass(frozen=True) above the class."
            )
