"""Batch normalization (Ioffe & Szegedy, 2015, arXiv:1502.03167) and renormalization (Ioffe, 2017, arXiv:1702.03275).

    training     y = γ x̂ + β,  x̂ = (x - μ) / √(σ² + ε)      μ, σ²: mean and variance over the rows of this batch
                 running mean and variance ← 0.99 running + 0.01 batch
    evaluation   the same with the running mean and variance, so that rows are independent
    renormalized x̂ r + d instead of x̂,  r = clip(σ / σ_running, 1/3, 3),  d = clip((μ - μ_running) / σ_running, -5, 5)
                 r and d have no gradient, and apply from the 100,001st batch on

σ² is the batch's population variance. The running variance may use the unbiased estimate instead, as in PyTorch. ε,
the limits and the momentum 0.99 (0.01 in PyTorch's convention) are from CrossQ's authors. Statistics are float32 in
every precision.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from array_api_compat import array_namespace

Array = Any
Values = Mapping[str, Array]

EPSILON = 1e-3
MOMENTUM = 0.99
R_MAX, D_MAX = 3.0, 5.0
WARM_UP = 100_000  # batches before renormalization


def broadcastable(vector: Array, like: Array) -> Array:
    """Reshape a norm's parameters (width,), or an ensemble's (M, width), to broadcast over the rows of `like`."""
    shape = (*(1,) * (like.ndim - 1), -1) if vector.ndim < 2 else (len(vector), 1, -1)
    return array_namespace(vector).reshape(vector, shape)


def updated_stats(values: Values, name: str, mean: Array, variance: Array) -> dict[str, Array]:
    """Return a dict of the norm `name`'s running statistics after a batch with this mean and variance."""
    after = {
        f"{name}.{kind}": MOMENTUM * values[f"{name}.{kind}"] + (1 - MOMENTUM) * batch
        for kind, batch in (("mean", mean), ("variance", variance))
    }
    count = f"{name}.count"
    return after | ({count: values[count] + 1} if count in values else {})


def renormalized(
    y: Array, values: Values, name: str, mean: Array, variance: Array, scale: Array, shift: Array
) -> Array:
    """Return γ (x̂ r + d) + β for y = γ x̂ + β. Without renormalization, or in its warm-up, r is 1 and d is 0."""
    if f"{name}.count" not in values:
        return y
    xp = array_namespace(scale)
    warm = values[f"{name}.count"] >= WARM_UP
    warm = xp.broadcast_to(xp.reshape(warm, (*warm.shape, 1)), mean.shape)
    running = xp.sqrt(values[f"{name}.variance"] + EPSILON)
    r = xp.clip(xp.sqrt(variance + EPSILON) / running, 1 / R_MAX, R_MAX)
    d = xp.clip((mean - values[f"{name}.mean"]) / running, -D_MAX, D_MAX)
    r, d = xp.where(warm, r, 1.0), xp.where(warm, d, 0.0)
    return xp.astype(y * broadcastable(r, y) + broadcastable(scale * d + shift * (1 - r), y), y.dtype, copy=False)


def eval_norm(x: Array, values: Values, name: str, scale: Array, shift: Array, epsilon: float = EPSILON) -> Array:
    """Normalize x by the running statistics, then scale and shift."""
    xp = array_namespace(x)
    factor = scale / xp.sqrt(values[f"{name}.variance"] + epsilon)
    y = x * broadcastable(factor, x) + broadcastable(shift - values[f"{name}.mean"] * factor, x)
    return xp.astype(y, x.dtype, copy=False)
