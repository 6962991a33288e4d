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
    flat = _flat(given, {leaf.name for leaf in layout.leaves}) if isinstance(given, dict | tuple | list) else {}
    if lacking := [leaf.name for leaf in layout.leaves if leaf.name not in flat]:
        raise UsageError(
            f"The observation lacks {', '.join(lacking)}. The agent was trained with "
            f"{', '.join(leaf.name for leaf in layout.leaves)}; keys may be nested, or joined by '/'."
        )
    parts = {leaf.name: _checked(leaf, flat[leaf.name], several) for leaf in layout.leaves}
    if len({len(part) for part in parts.values()}) > 1:
        raise UsageError("The parts are not of the same number of observations.")
    return layout.batch(parts)


def _checked(leaf: Any, given: Any, several: bool) -> np.ndarray:
    """One part as an array with a leading axis (N, ...). UsageError if it is not in its space.

    Floats may be outside their bounds, as in training.
    """
    about = f"The {leaf.describe()}"
    try:
        value = obs_tree.array(given)
    except (ValueError, TypeError, RuntimeError) as error:  # rows of different lengths
        raise UsageError(f"{about} is no array: {str(error).rstrip('.')}.") from error
    if value.dtype.kind not in "biuf":
        raise UsageError(f"{about} is {given!r:.80}; it must be numbers of shape {leaf.shape}.")
    found, wanted = value.shape, f"(N, {str(leaf.shape)[1:]}" if several else str(leaf.shape)
    value = value if several else value[None]
    if not value.ndim or value.shape[1:] != leaf.shape:
        raise UsageError(
            f"{about} has shape {found}; the agent was trained with {wanted}. act takes one "
            "observation, act_batch several."
        )
    # One dot product says "all finite" in 0.5 µs; squares that overflow are looked at again.
    if value.dtype.kind == "f" and not float(np.vdot(value, value)) <= _MOST**2 and not np.abs(value).max() <= _MOST:
        raise UsageError(f"{about} is NaN, infinite or beyond float32 ({value.tolist()!r:.80}).")
    if value.dtype.kind not in leaf.kinds:
        raise UsageError(f"{about} has dtype {value.dtype}; the agent was trained with {leaf.dtype}.")
    if leaf.is_left(value):
        raise UsageError(f"{about} is not in its space: {value.tolist()!r:.80}.")
    return value


def _flat(given: Any, leaves: set[str], prefix: str = "") -> dict[str, Any]:
    """Flatten to joined keys; a part of the space is kept whole: an array, a list or a tuple."""
    items = given.items() if isinstance(given, dict) else enumerate(given)
    flat: dict[str, Any] = {}
    for key, part in items:
        name = f"{prefix}{key}"
        nested = isinstance(part, dict | tuple | list) and name not in leaves
        flat |= _flat(part, leaves, f"{name}/") if nested else {name: part}
    return flat
