"""Batch normalisation (Ioffe & Szegedy, 2015, arXiv:1502.03167) and renormalisation (Ioffe, 2017, arXiv:1702.03275).

    learning     y = γ x̂ + β,  x̂ = (x - μ) / √(σ² + ε)      μ, σ²: mean and variance over the rows of this batch
                 running mean and variance ← 0.99 of what they were and 0.01 of μ and σ²
    else         the same with the running mean and variance: what a row becomes does not depend on its neighbours
    renormalised x̂ r + d,  r = clip(σ / σ_running, 1/3, 3),  d = clip((μ - μ_running) / σ_running, -5, 5)
                 without gradient, from the 100,001st batch on: as if it were not learning, unless the two are far apart

The variance is that of the batch, Σ (x - μ)² / B. ε, the share of the old and the limits are those of CrossQ's authors
(Flax's momentum 0.99 is PyTorch's 0.01). Statistics are float32, whatever the networks compute in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from array_api_compat import array_namespace

from duetto.functional.gradients import stop_gradient

Array = Any
Values = Mapping[str, Array]

EPSILON = 1e-3
KEPT = 0.99  # of the running statistics at each batch
R_MAX, D_MAX = 3.0, 5.0
WARM_UP = 100_000  # batches without renormalisation


def shaped(vector: Array, like: Array) -> Array:
    """A norm's numbers (width,), or (M, width) of an ensemble, in a shape that broadcasts over the rows of `like`."""
    shape = (*(1,) * (like.ndim - 1), -1) if vector.ndim < 2 else (len(vector), 1, -1)
    return array_namespace(vector).reshape(vector, shape)


def moved(values: Values, name: str, mean: Array, variance: Array) -> dict[str, Array]:
    """The running statistics of the norm `name` after a batch of this mean and variance, by name."""
    after = {
        f"{name}.{kind}": KEPT * values[f"{name}.{kind}"] + (1 - KEPT) * stop_gradient(batch)
        for kind, batch in (("mean", mean), ("variance", variance))
    }
    count = f"{name}.count"
    return after | ({count: values[count] + 1} if count in values else {})


def renormalized(
    values: Values, name: str, mean: Array, variance: Array, scale: Array, shift: Array
) -> tuple[Array, Array]:
    """Scale γ r and shift γ d + β in place of γ and β; without renormalisation, and before it begins, those two."""
    if f"{name}.count" not in values:
        return scale, shift
    xp = array_namespace(scale)
    mean, variance, warm = stop_gradient(mean), stop_gradient(variance), values[f"{name}.count"] >= WARM_UP
    warm = xp.broadcast_to(xp.reshape(warm, (*warm.shape, 1)), mean.shape)
    running = xp.sqrt(values[f"{name}.variance"] + EPSILON)
    r = xp.clip(xp.sqrt(variance + EPSILON) / running, 1 / R_MAX, R_MAX)
    d = xp.clip((mean - values[f"{name}.mean"]) / running, -D_MAX, D_MAX)
    return xp.where(warm, scale * r, scale), xp.where(warm, shift + scale * d, shift)


def settled(x: Array, values: Values, name: str, scale: Array, shift: Array) -> Array:
    """x normalised by the running statistics, scaled and shifted."""
    xp = array_namespace(x)
    factor = scale / xp.sqrt(values[f"{name}.variance"] + EPSILON)
    y = x * shaped(factor, x) + shaped(shift - values[f"{name}.mean"] * factor, x)
    return xp.astype(y, x.dtype)
