"""Schemas of saved states; a state is checked before any part of it is used or allocated.

A schema is
- `int`: an integer from 0 to 2^53; `INTEGER`: one from -2^53 to 2^53; `SEED`: one from 0 to 2^64 - 1; `float`: a
  finite number; `BOUND`: a finite or infinite number; `NUMBER`: also NaN; `bool`; `str`,
- a NumPy array: an array of the same shape, with a dtype that NumPy can cast to this array's dtype (`same_kind`),
- `ArrayOf`: an array whose rows have a given shape and dtype,
- a dict: a dict with these keys, whose values have the given schemas; further keys are ignored,
- `DictOf` and `ListOf`: a dict or a list whose values have one schema; `OptionalOf`: None, or a value with a schema,
- `ANY`: not checked here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from duetto.errors import CheckpointError

ANY = object()
INTEGER = object()
SEED = object()
BOUND = object()
NUMBER = object()
_MOST = 2**53


@dataclass(frozen=True)
class DictOf:
    """A dict whose values all have the schema `form`, with exactly the keys `keys`; None allows any keys."""

    form: Any
    keys: Sequence[str] | None = None


@dataclass(frozen=True)
class ListOf:
    """A list whose items all have the schema `form`."""

    form: Any


@dataclass(frozen=True)
class OptionalOf:
    """None, or a value with the schema `form`."""

    form: Any


@dataclass(frozen=True)
class ArrayOf:
    """An array of shape (rows, *shape). `rows` None allows any number of rows, `shape` None any shape."""

    rows: int | None
    shape: tuple[int, ...] | None
    dtype: Any = np.float64


ARRAY = ArrayOf(None, None)  # any array of real numbers


def check(state: Any, form: Any, what: str) -> None:
    """Raise CheckpointError with the path to the fault if `state` violates the schema. `what` names the state."""
    if fault := problem(state, form):
        raise CheckpointError(f"The checkpoint does not belong to this run, or was changed: {what}{fault}.")


def problem(state: Any, form: Any) -> str:
    """Return the path from `state` to the first fault, followed by the fault; "" if there is none."""
    match form:
        case OptionalOf():
            return "" if state is None else problem(state, form.form)
        case dict() | DictOf() if not isinstance(state, dict):
            return _is(state, "a dict")
        case DictOf() if form.keys is not None and set(state) != set(form.keys):
            return f" has the keys {sorted(map(str, state))[:9]}, not {sorted(form.keys)[:9]}"
        case DictOf():
            return _of_parts(state, dict.fromkeys(state, form.form))
        case dict():
            return _of_parts(state, form)
        case ListOf():
            if not isinstance(state, list):
                return _is(state, "a list")
            return _of_parts(dict(enumerate(state)), dict.fromkeys(range(len(state)), form.form))
        case ArrayOf() | np.ndarray():
            return _of_array(state, form)
    return _of_value(state, form)


def _of_parts(state: dict[Any, Any], forms: dict[Any, Any]) -> str:
    for key, form in forms.items():
        if key not in state:
            return f" has no {key}"
        if fault := problem(state[key], form):
            return f"/{key}{fault}"
    return ""


def _of_array(state: Any, form: ArrayOf | np.ndarray) -> str:
    if not isinstance(state, np.ndarray) or not np.can_cast(state.dtype, form.dtype, "same_kind"):
        return _is(state, "an array")
    if isinstance(form, np.ndarray):
        return "" if state.shape == form.shape else _is(state, f"an array {form.shape}")
    fits = form.shape is None or (state.ndim > 0 and state.shape[1:] == form.shape)
    if fits and (form.rows is None or state.shape[:1] == (form.rows,)):
        return ""
    return _is(state, f"an array of {'some' if form.rows is None else form.rows} rows {form.shape}")


def _of_value(state: Any, form: Any) -> str:
    finite = type(state) is int and abs(state) <= _MOST
    if form is ANY:
        return ""
    if form is SEED:
        return "" if type(state) is int and 0 <= state < 2**64 else _is(state, "a seed")
    if form is INTEGER:
        return "" if finite else _is(state, "an integer")
    if form is int:
        return "" if finite and state >= 0 else _is(state, "a count")
    if form is NUMBER:
        return "" if finite or type(state) is float else _is(state, "a number")
    if form in (float, BOUND):
        number = type(state) is float and (math.isfinite(state) or (form is BOUND and math.isinf(state)))
        return "" if finite or number else _is(state, "a finite number")
    return "" if type(state) is form else _is(state, f"a {form.__name__}")


def _is(state: Any, wanted: str) -> str:
    if isinstance(state, np.ndarray):
        return f" is an array {state.dtype}{state.shape}, not {wanted}"
    text = repr(state) if isinstance(state, bool | int | float | str | None) else type(state).__name__
    return f" is {text[:60]}, not {wanted}"
