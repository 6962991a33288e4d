"""Check that what a class of an algorithm sets is an option: to Python, a default without a type is none."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from functools import cache
from inspect import get_annotations
from typing import TYPE_CHECKING

from duetto.errors import UsageError

if TYPE_CHECKING:
    from duetto.algorithms.base import Algorithm


@cache
def check(kind: type[Algorithm]) -> None:
    """Raise UsageError where a class sets an option that it does not declare, or declares one and is no dataclass."""
    for one in kind.__mro__:
        above = _declared(one.__mro__[1:])
        annotations = get_annotations(one)
        options = [name for name, annotation in annotations.items() if "ClassVar" not in str(annotation)]
        if above and options and "__dataclass_params__" not in vars(one):
            raise UsageError(
                f"{one.__qualname__} has fields ({', '.join(options)}) but is no dataclass: put "
                "@dataclass(frozen=True) above it."
            )
        if lost := [name for name in vars(one) if name in above and name not in annotations]:
            raise UsageError(
                f"{one.__qualname__} sets {lost[0]} without a type, so it changes no option: write "
                f"`{lost[0]}: {above[lost[0]]} = {vars(one)[lost[0]]!r}`."
            )


def _declared(bases: Iterable[type]) -> dict[str, str]:
    """The types of the bases' fields, by name; what the nearest base says counts."""
    found: dict[str, str] = {}
    for base in bases:
        if dataclasses.is_dataclass(base):
            found = {field.name: str(field.type) for field in dataclasses.fields(base)} | found
    return found
