"""Running mean and variance of a stream of batches, and scaling by them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Moments(NamedTuple):
    """Mean and variance per element, and the number of samples that they are of."""

    mean: np.ndarray  # (...,) float64
    variance: np.ndarray  # (...,) float64, of the population
    count: float  # pyright: ignore[reportIncompatibleMethodOverride]


def fresh_moments(shape: tuple[int, ...], count: float = 1.0) -> Moments:
    """Mean 0, variance 1, as if `count` samples had been seen: scaling is the identity until data arrive.

    skrl has 1; Gymnasium 0.0001, so that the first samples alone decide.
    """
    return Moments(np.zeros(shape), np.ones(shape), count)


def merged(moments: Moments, batch: np.ndarray, ddof: int = 0) -> Moments:
    """Moments after one more batch (B, ...) (Chan et al., 1979, parallel update); an empty one changes nothing.

    `ddof` 0 takes the batch's population variance. 1 is what skrl does: a batch of one sample then yields NaN for good.
    """
    batch = np.asarray(batch, np.float64)
    if len(batch) == 0:
        return moments
    return together(moments, Moments(batch.mean(axis=0), batch.var(axis=0, ddof=ddof), len(batch)))


def together(one: Moments, other: Moments) -> Moments:
    """Moments of the samples of `one` and of `other` together."""
    if not other.count:
        return one
    delta, total = other.mean - one.mean, one.count + other.count
    squares = one.variance * one.count + other.variance * other.count + delta**2 * one.count * other.count / total
    mean = np.asarray(one.mean + delta * other.count / total)  # of numbers, NumPy makes no array by itself
    return Moments(mean, np.asarray(squares / total), total)


def scaled(x: Any, moments: Moments, clip: float = 5.0, epsilon: float = 1e-8) -> np.ndarray:
    """clip((x - mean) / (std + ε), ±clip) as float32, same shape as x (B, ...)."""
    y = (np.asarray(x) - moments.mean) / (np.sqrt(moments.variance) + epsilon)
    return np.clip(y, -clip, clip).astype(np.float32)
