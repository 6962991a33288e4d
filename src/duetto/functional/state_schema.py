"""Schemas of saved states, and their check before any part of a state is used or allocated.

A schema is
- `int`: an integer from 0 to 2^53, `INTEGER`: also from -2^53; `float`: a finite number, `BOUND`: also infinite;
  `bool`; `str`,
- an array: one of the same shape, of a dtype that fits without loss of kind,
- `ArrayOf`: an array with rows of a shape and dtype,
- a dict: a dict with these keys, each with its schema; further keys are ignored, as they are never read,
- `DictOf` and `ListOf`: a dict with any keys, a list, of one schema; `OptionalOf`: None or one schema,
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
BOUND = object()
_MOST = 2**53


@dataclass(frozen=True)
class DictOf:
    """A dict whose values have one schema; with `keys`, exactly these keys."""

    form: Any
    keys: Sequence[str] | None = None


@dataclass(frozen=True)
class ListOf:
    """A list whose items have one schema."""

    form: Any


@dataclass(frozen=True)
class OptionalOf:
    """None, or a value with the schema."""

    form: Any


@dataclass(frozen=True)
class ArrayOf:
    """An array (rows, *shape); `rows` None is any number, `shape` None any shape."""

    rows: int | None
    shape: tuple[int, ...] | None
    dtype: Any = np.float64

    @classmethod
    def like(cls, array: np.ndarray, rows: int | None = None) -> ArrayOf:
        """Return the schema of `rows` rows like those of `array`."""
        return cls(rows, array.shape[1:], array.dtype)


ARRAY = ArrayOf(None, None)  # of real numbers


def check(state: Any, form: Any, what: str) -> None:
    """Raise CheckpointError with the path to the fault if `state` violates the schema. `what` names the state."""
    if fault := problem(state, form):
        raise CheckpointError(f"The checkpoint is not one of this run, or was changed: {what}{fault}.")


def problem(state: Any, form: Any) -> str:
    """Return the path from here to the fault, and the fault; "" if there is none."""
    match form:
        case dict():
            return _of_dict(state, form)
        case DictOf():
            keys = state if isinstance(state, dict) and form.keys is None else form.keys or ()
            if isinstance(state, dict) and set(state) != set(keys):
                return f" has the keys {sorted(map(str, state))[:9]}, not {sorted(keys)[:9]}"
            return _of_dict(state, dict.fromkeys(keys, form.form))
        case ListOf():
            if not isinstance(state, list):
                return _is(state, "a list")
            return next((f"/{i}{found}" for i, one in enumerate(state) if (found := problem(one, form.form))), "")
        case OptionalOf():
            return "" if state is None else problem(state, form.form)
        case ArrayOf():
            return _of_rows(state, form)
        case np.ndarray():
            whole = isinstance(state, np.ndarray) and state.shape == form.shape and _fits(state.dtype, form.dtype)
            return "" if whole else _is(state, f"an array {form.dtype}{form.shape}")
    return _of_value(state, form)


def _of_dict(state: Any, form: dict[str, Any]) -> str:
    if not isinstance(state, dict):
        return _is(state, "a dict")
    for key, inner in form.items():
        if key not in state:
            return f" has no {key}"
        if found := problem(state[key], inner):
            return f"/{key}{found}"
    return ""


def _of_rows(state: Any, form: ArrayOf) -> str:
    wanted = "an array" if form.shape is None else f"an array of rows {form.shape}"
    if not isinstance(state, np.ndarray) or not _fits(state.dtype, np.dtype(form.dtype)):
        return _is(state, wanted)
    if form.shape is not None and (state.ndim == 0 or state.shape[1:] != form.shape):
        return _is(state, wanted)
    if form.rows is not None and state.shape[:1] != (form.rows,):
        return _is(state, f"{wanted}, {form.rows} of them")
    return ""


def _of_value(state: Any, form: Any) -> str:
    if form is ANY:
        return ""
    if form is INTEGER:
        return "" if type(state) is int and abs(state) <= _MOST else _is(state, "an integer")
    if form is int:
        return "" if type(state) is int and 0 <= state <= _MOST else _is(state, "a count")
    if form is BOUND and type(state) is float and math.isinf(state):
        return ""
    if form in (float, BOUND):
        known = type(state) is float or (type(state) is int and abs(state) <= _MOST)
        return "" if known and math.isfinite(state) else _is(state, "a finite number")
    return "" if type(state) is form else _is(state, f"a {form.__name__}")


def _fits(dtype: np.dtype, wanted: np.dtype) -> bool:
    return np.can_cast(dtype, wanted, "same_kind")


def _is(state: Any, wanted: str) -> str:
    if isinstance(state, np.ndarray):
        return f" is an array {state.dtype}{state.shape}, not {wanted}"
    text = repr(state) if isinstance(state, bool | int | float | str | None) else type(state).__name__
    return f" is {text[:60]}, not {wanted}"
