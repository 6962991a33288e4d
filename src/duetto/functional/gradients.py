"""Stopping gradients, in either framework."""

from __future__ import annotations

import sys
from typing import Any


def stop_gradient(x: Any) -> Any:
    """x (...), through which no gradient flows, of either framework or NumPy."""
    if hasattr(x, "detach"):  # PyTorch's
        return x.detach()
    jax = sys.modules.get("jax")  # imported already, where x is an array of it
    return jax.lax.stop_gradient(x) if jax is not None and isinstance(x, jax.Array) else x
