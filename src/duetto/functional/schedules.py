"""Schedules of learning rates, ε and noise, as pure functions of the run's progress."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

Decay = Literal["constant", "linear", "cosine"]


def linear(step: int, steps: int, initial: float, final: float) -> float:
    """Return the value at `step` on a line from `initial` at step 0 to `final` at `steps`, then `final`."""
    if step >= steps:
        return final
    return (1.0 - step / steps) * (initial - final) + final


def decay_factor(kind: Decay, progress: float, final: float) -> float:
    """Return a learning rate's factor at `progress` in [0, 1]. The factor falls from 1 to `final`, or is always 1."""
    progress = min(max(progress, 0.0), 1.0)
    if kind == "constant":
        return 1.0
    falling = 1.0 - progress if kind == "linear" else 0.5 * (1.0 + math.cos(math.pi * progress))
    return final + (1.0 - final) * falling


def epsilon_schedule(
    kind: Literal["linear", "exponential"], step: int, steps: int, initial: float, final: float
) -> float:
    """Return ε at `step`: as `linear` does, or (initial - final) exp(-step / steps) + final (as in DI-engine)."""
    if kind == "linear":
        return linear(step, steps, initial, final)
    return (initial - final) * math.exp(-step / steps) + final


def exploration_ladder(count: int, base: float, exponent: float) -> np.ndarray:
    """Return ε_i = base^(1 + α i / (N-1)) of N = `count` actors (Horgan et al., 2018, Ape-X, arXiv:1803.00933).

    A single actor has `base`.
    """
    return base ** (1.0 + exponent * np.arange(count) / max(count - 1, 1))


def kl_adaptive(rate: float, kl: float, threshold: float) -> float:
    """Return a lower rate if `kl` is far above `threshold`, and a higher rate if far below (skrl's KLAdaptiveRL)."""
    if kl > 2.0 * threshold:
        return max(rate / 1.5, 1e-6)
    return min(1.5 * rate, 1e-2) if kl < threshold / 2.0 else rate
