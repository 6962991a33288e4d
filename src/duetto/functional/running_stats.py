"""Running mean and variance of a stream of batches, and normalization with them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace


class Moments(NamedTuple):
    """Mean and variance per element, and the number of samples."""

    mean: Any  # (...,) float64; float32 in JAX
    variance: Any  # (...,) population variance, in the mean's dtype
    count: Any  # pyright: ignore[reportIncompatibleMethodOverride]


def initial_moments(shape: tuple[int, ...], prior: float = 1.0) -> Moments:
    """Return mean 0 and variance 1 with the weight of `prior` samples. They leave data unscaled at first.

    skrl uses a prior of 1. Gymnasium uses 0.0001, so its first samples outweigh these values.
    """
    return Moments(np.zeros(shape), np.ones(shape), prior)


def update_moments(moments: Moments, batch: Any) -> Moments:
    """Return the moments after another batch (B, ...), which may be empty (Chan et al., 1979, parallel update)."""
    batch = array_namespace(moments.mean).asarray(batch, dtype=moments.mean.dtype)
    if len(batch) == 0:
        return moments
    return merge_moments(moments, Moments(batch.mean(axis=0), batch.var(axis=0), len(batch)))


def merge_moments(one: Moments, other: Moments) -> Moments:
    """Return the moments of the samples of `one` and `other`."""
    if isinstance(other.count, int | float) and not other.count:
        return one
    xp = array_namespace(one.mean)
    delta, total = other.mean - one.mean, one.count + other.count
    squares = one.variance * one.count + other.variance * other.count + delta**2 * one.count * other.count / total
    mean = xp.asarray(one.mean + delta * other.count / total)  # NumPy's operations on scalars return no arrays
    return Moments(mean, xp.asarray(squares / total), total)


def normalize(x: Any, moments: Moments, clip: float = 5.0, epsilon: float = 1e-8) -> Any:
    """Return clip((x - mean) / (std + ε), ±clip) as float32, for x (B, ...)."""
    xp = array_namespace(moments.mean)
    y = (xp.asarray(x) - moments.mean) / (xp.sqrt(moments.variance) + epsilon)
    return y.clip(-clip, clip).astype(np.float32)
