"""Checking observations that a user hands to an agent: of one environment or of several, nested or flat."""

from __future__ import annotations

from typing import Any

import numpy as np

from duetto.environments import Layout, Tree, obs_tree
from duetto.errors import UsageError

_MOST = float(np.finfo(np.float32).max)


def rows(layout: Layout, given: Any, several: bool) -> Tree:
    """The observation, or `several` (N, ...), as a `VecEnv` gives them.

    Raises:
        UsageError: A part is missing, has another shape than the agent was trained with, or is not in its space.
    """
    if layout.single:
        return layout.batch(_checked(layout.leaves[0], given, several))
    flat = _flat(given, {leaf.name for leaf in layout.leaves}) if _is_nested(given) else {}
    lacking = [leaf.name for leaf in layout.leaves if leaf.name not in flat]
    if lacking:
        raise UsageError(
            f"The observation lacks {', '.join(lacking)}. The agent was trained with "
            f"{', '.join(leaf.name for leaf in layout.leaves)}; keys may be nested, or joined by '/'.{_of_reset(given)}"
        )
    parts = {leaf.name: _checked(leaf, flat[leaf.name], several) for leaf in layout.leaves}
    if len({len(part) for part in parts.values()}) > 1:
        lengths = ", ".join(f"{name} {len(part)}" for name, part in parts.items())
        raise UsageError(f"The parts are not of the same number of observations: {lengths}.")
    return layout.batch(parts)


def _of_reset(given: Any) -> str:
    """A hint if an observation came with its info, as `reset` gives both; else ""."""
    with_info = isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], dict)
    return " reset gives (observation, info): hand over the observation alone." if with_info else ""


def _checked(leaf: Any, given: Any, several: bool) -> np.ndarray:
    """One part as an array with a leading axis (N, ...). UsageError if it is not in its space."""
    try:
        value = obs_tree.array(given)
    except (ValueError, TypeError, RuntimeError) as error:  # rows of different lengths
        raise UsageError(f"The {leaf.describe()} is no array: {str(error).rstrip('.')}.{_of_reset(given)}") from error
    if value.dtype.kind not in "biuf":
        raise UsageError(f"The {leaf.describe()} is {given!r:.80}; it must be numbers of shape {leaf.shape}.")
    value = value if several else value[None]
    if value.ndim and value.shape[1:] == leaf.shape:
        # One dot product says "all finite" in 0.5 µs; squares that overflow are looked at again.
        if value.dtype.kind == "f" and not float(np.vdot(value, value)) <= _MOST**2:
            _check_finite(leaf, value)
        _check_whole(leaf, value)
        return value
    found = value.shape if several else value.shape[1:]
    wanted = f"(N, {str(leaf.shape)[1:]}" if several else str(leaf.shape)
    way = "" if several or found[1:] != leaf.shape else " For several at once there is act_batch."
    way = way if not several or found != leaf.shape else " For a single one there is act."
    raise UsageError(f"The {leaf.describe()} has shape {found}; the agent was trained with {wanted}.{way}")


def _check_finite(leaf: Any, value: np.ndarray) -> None:
    what = "" if np.isfinite(value).all() else "NaN or infinite"
    if not what and np.abs(value).max() > _MOST:
        what = "beyond float32"
    if what:
        raise UsageError(f"The {leaf.describe()} is {what} ({value.tolist()!r:.80}); no action follows from that.")


def _check_whole(leaf: Any, value: np.ndarray) -> None:
    """Raise UsageError for bytes or choices outside their space; floats may be outside their bounds, as in training."""
    if value.dtype.kind not in leaf.kinds:
        hint = " Hand over an image's bytes, 0 to 255, as the environment gives them." if leaf.dtype == np.uint8 else ""
        raise UsageError(
            f"The {leaf.describe()} has dtype {value.dtype}; the agent was trained with {leaf.dtype}.{hint}"
        )
    if leaf.is_left(value):
        raise UsageError(f"The {leaf.describe()} is not in its space: {value.tolist()!r:.80}.")


def _is_nested(given: Any) -> bool:
    return isinstance(given, dict | tuple | list)


def _flat(given: Any, leaves: set[str], prefix: str = "") -> dict[str, Any]:
    """Flatten to joined keys; what is a part of the space is not looked into, be it an array, a list or a tuple."""
    items = given.items() if isinstance(given, dict) else enumerate(given)
    flat: dict[str, Any] = {}
    for key, part in items:
        name = f"{prefix}{key}"
        flat |= _flat(part, leaves, f"{name}/") if _is_nested(part) and name not in leaves else {name: part}
    return flat
