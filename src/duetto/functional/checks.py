"""Shapes are checked at the door: a (B,) against a (B, 1) would broadcast to (B, B) without a word."""

from __future__ import annotations

from typing import Any


def same_shape(**arrays: Any) -> None:
    """Raise ValueError that shows every shape unless all arrays have the same one."""
    shapes = {name: tuple(array.shape) for name, array in arrays.items()}
    if len(set(shapes.values())) > 1:
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(f"These must have equal shapes: {listed}.")
