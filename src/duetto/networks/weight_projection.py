"""Projection of weights onto unit norm, after initialization and after every step of the optimizer.

    linear layer     each row (an output's weights)      w ← w / max(‖w‖, 1e-8)
    batch norm       scale γ and shift β together        (γ, β) ← (γ, β) · √(width / (Σ γ² + Σ β² + 1e-8))
    RMS norm         scale g                             g ← g · √(width / (Σ g² + 1e-8))

Biases stay. The step size of a projected weight relative to its norm is the learning rate (Loshchilov et al., 2025,
nGPT, arXiv:2410.01131; Lee et al., 2025, SimbaV2, arXiv:2502.15280).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from array_api_compat import array_namespace

from duetto.networks.layers import Stack

Array = Any


def projected(stacks: list[Stack], values: Mapping[str, Array]) -> dict[str, Array]:
    """Return the projected arrays of these layers by name, of all arrays (..., out, in) and (..., width)."""
    found: dict[str, Array] = {}
    for stack in stacks:
        for i in range(len(stack.layers)):
            name = f"{stack.layer(i)}.weight"
            found[name] = _unit_rows(values[name])
        for i, width in enumerate(stack.norms if stack.blocks == "flash" else []):
            names = [f"{stack.norm(i)}.{part}" for part in ("weight", "bias") if f"{stack.norm(i)}.{part}" in values]
            found |= zip(names, _joint([values[name] for name in names], width), strict=True)
    return found


def _unit_rows(weight: Array) -> Array:
    xp = array_namespace(weight)
    norm = xp.sqrt(xp.sum(weight * weight, axis=-1, keepdims=True))
    return weight / xp.clip(norm, 1e-8, None)


def _joint(parts: list[Array], width: int) -> list[Array]:
    """Scale arrays (..., width) by one factor, after which their squares add up to `width`."""
    xp = array_namespace(parts[0])
    squares = sum(xp.sum(part * part, axis=-1, keepdims=True) for part in parts)
    factor = (width / (squares + 1e-8)) ** 0.5
    return [part * factor for part in parts]
