"""Check that what a class of an algorithm sets is an option: to Python, a default without a type is none."""

from __future__ import annotations

import dataclasses
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
        above = {field.name for base in one.__mro__[1:] if dataclasses.is_dataclass(base) for field in _fields(base)}
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
                f"`{lost[0]}: {_type_of(one, lost[0])} = {vars(one)[lost[0]]!r}`."
            )


def _fields(base: type) -> tuple[dataclasses.Field[object], ...]:
    return dataclasses.fields(base)  # pyright: ignore[reportArgumentType]


def _type_of(kind: type, name: str) -> str:
    return next(str(field.type) for base in kind.__mro__[1:] for field in _fields(base) if field.name == name)
