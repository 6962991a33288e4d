"""Operations on arrays of PyTorch, JAX or NumPy that losses and exploration use."""

from __future__ import annotations

import sys
from typing import Any

from array_api_compat import array_namespace

from duetto.functional.pytree import tree_map_many


def check_same_shape(**arrays: Any) -> None:
    """Raise ValueError with all shapes unless all arrays have the same one.

    A (B,) and a (B, 1) would otherwise broadcast to (B, B).
    """
    shapes = {name: tuple(array.shape) for name, array in arrays.items()}
    if len(set(shapes.values())) > 1:
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(f"These must have equal shapes: {listed}.")


def stop_gradient(x: Any) -> Any:
    """Return x (...) without gradient."""
    if hasattr(x, "detach"):  # PyTorch's
        return x.detach()
    jax = sys.modules.get("jax")  # already imported if x is its array
    return jax.lax.stop_gradient(x) if jax is not None and isinstance(x, jax.Array) else x


def concat(one: Any, other: Any) -> Any:
    """Concatenate the rows of two trees: arrays (B, ...) and (C, ...) to (B + C, ...)."""
    return tree_map_many(lambda both: array_namespace(both[0]).concat(both, axis=0), [one, other])


def ornstein_uhlenbeck(x: Any, normal: Any, theta: float, sigma: float) -> Any:
    """Return the next value of a mean-reverting process (Uhlenbeck & Ornstein, 1930), for x and `normal` (...).

    Its stationary std is σ / √(1 - (1-θ)²), as in skrl.
    """
    return x - theta * x + sigma * normal
