"""The options of algorithms: their checks, their groups in `--help`, and how `duetto tune` searches them.

Each class that declares options describes them once, next to its fields, in its class variable `option_table`:

    option_table: ClassVar[OptionTable] = {
        "members": Option(search={"low": 2, "high": 10}),
        **in_group("replay", "priority_exponent", "priority_epsilon", needs="prioritized"),
    }

Options without an entry are shown in the algorithm's own group and searched by their type.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from inspect import get_annotations
from typing import Any, ClassVar, Literal, Self, get_args

from duetto.algorithms.option_bounds import check_fields
from duetto.algorithms.suggestions import did_you_mean
from duetto.errors import UsageError
from duetto.networks.specs import CustomNetwork

Group = Literal["", "exploration", "networks", "optimizer", "replay", "recurrence", "demonstrations"]
"""Groups of `--help`, in the order in which they are shown; "" is the algorithm's own."""

Search = Mapping[str, Any] | Literal["auto"] | None
"""How `duetto tune` searches an option, as in a search file (`tools.tune.space`); None: only on request."""


@dataclass(frozen=True)
class Option:
    """Group, prerequisite and search of an option."""

    group: Group = ""
    needs: str = ""  # the option without which it has no effect: "prioritized", "exploration=ou", "ends=a,b"
    rare: bool = False  # seldom changed: only `--help-all` shows it
    search: Search = "auto"

    def is_enabled(self, kind: type[Options]) -> bool:
        """Return whether the option that it needs is enabled by the defaults of a class."""
        name, _, values = self.needs.partition("=")
        default = kind.__dataclass_fields__[name].default if name else True
        return default in values.split(",") if values else default not in (False, "none", "off", "constant", 0)


OptionTable = Mapping[str, Option]


def in_group(group: Group, *names: str, needs: str = "", rare: bool = False, search: Search = None) -> OptionTable:
    """Return entries for several options of one kind, which `duetto tune` does not search by default."""
    return dict.fromkeys(names, Option(group, needs, rare, search))


class Options:
    """The options of a frozen dataclass: their checks, their groups, and how they are searched.

    Attributes:
        option_table: The class's own entries; the bases' count for all others.
    """

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]  # of subclasses
    option_table: ClassVar[OptionTable] = {}

    def __new__(cls, *args: Any, **options: Any) -> Self:
        """Create an instance.

        Raises:
            UsageError: An unknown hyper-parameter, one without its name, or a class that sets an undeclared option.
        """
        if args:
            raise UsageError(
                f"{cls.__name__} takes hyper-parameters by name, neither policy nor environment: "
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
                raise UsageError(f"{cls.name()} has no hyper-parameter {name!r}.{did_you_mean(name, cls.options())}")

    @classmethod
    def name(cls) -> str:
        """The algorithm's name on the command line and in a run's folder."""
        return cls.__name__.lower()

    @classmethod
    def options(cls) -> list[str]:
        """The names of all hyper-parameters."""
        return [field.name for field in dataclasses.fields(cls)]

    @classmethod
    def declared_options(cls) -> OptionTable:
        """Return the entry of each option in `option_table`; the class of an option overrides its bases."""
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
        """Return the options that only `--help-all` shows: seldom changed, or without effect by default."""
        table = cls.declared_options().items()
        return frozenset(name for name, entry in table if entry.rare or not entry.is_enabled(cls))

    @classmethod
    def declared_searches(cls) -> Mapping[str, Search]:
        """Return how `duetto tune` searches each option that it does not search by its type."""
        table = cls.declared_options().items()
        searches: dict[str, Search] = {name: entry.search if entry.is_enabled(cls) else None for name, entry in table}
        return {name: search for name, search in searches.items() if search != "auto"}

    def with_options(self, **options: Any) -> Self:
        """Return a copy with some hyper-parameters changed. Raises UsageError for an unknown name."""
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
                f"{base.__qualname__} sets {', '.join(untyped or own) or 'options'}, which is no option yet: write "
                "`name: type = value`, and @dataclass(frozen=True) above the class."
            )
