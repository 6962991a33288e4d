"""Operations on arrays of PyTorch, JAX or NumPy that losses and exploration use."""

from __future__ import annotations

import sys
from typing import Any

from array_api_compat import array_namespace

from duetto.functional.pytree import tree_map_many


def check_same_shape(**arrays: Any) -> None:
    """Raise ValueError, listing all shapes, if the arrays' shapes differ.

    Without this check, (B,) and (B, 1) would broadcast to (B, B).
    """
    shapes = {name: tuple(array.shape) for name, array in arrays.items()}
    if len(set(shapes.values())) > 1:
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(f"These must have equal shapes: {listed}.")


def stop_gradient(x: Any) -> Any:
    """Return x (...) without gradient."""
    if hasattr(x, "detach"):  # PyTorch's
        return x.detach()
    jax = sys.modules.get("jax")  # imported already if x is a JAX array
    return jax.lax.stop_gradient(x) if jax is not None and isinstance(x, jax.Array) else x


def scatter_add(index: Any, values: Any) -> Any:
    """Return an array like `values` (..., n): in each row, element i is the sum of the values with index i.

    `index` (..., n) has integers from 0 to n - 1. Summing products with one-hot indices would take 50 times as long.
    """
    xp = array_namespace(values)
    if hasattr(values, "scatter_add"):  # PyTorch's
        return xp.zeros_like(values).scatter_add(-1, xp.astype(index, xp.int64), values)
    rows = xp.reshape(values, (-1, values.shape[-1]))
    columns, row = xp.reshape(index, rows.shape), xp.arange(rows.shape[0])[:, None]
    zeros = xp.zeros_like(rows)
    if hasattr(zeros, "at"):  # JAX's
        return xp.reshape(zeros.at[row, columns].add(rows), values.shape)
    xp.add.at(zeros, (row, columns), rows)
    return xp.reshape(zeros, values.shape)


def concat(one: Any, other: Any) -> Any:
    """Concatenate two trees of arrays along the first axis: (B, ...) and (C, ...) to (B + C, ...)."""
    return tree_map_many(lambda both: array_namespace(both[0]).concat(both, axis=0), [one, other])


def ornstein_uhlenbeck(x: Any, normal: Any, theta: float, sigma: float) -> Any:
    """Return the next value of a mean-reverting process, whose value is x (Uhlenbeck & Ornstein, 1930).

    `normal` is standard normal noise; all arrays are (...). The formula is from skrl. The stationary std is
    σ / √(1 - (1-θ)²).
    """
    return x - theta * x + sigma * normal
