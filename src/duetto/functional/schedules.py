"""Numbers that change while a run goes on. Each is a pure function of where the run is."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

Decay = Literal["constant", "linear", "cosine"]


def linear(step: int, steps: int, initial: float, final: float) -> float:
    """Value at `step` on a line from `initial` at step 0 to `final` at `steps`, then `final` (skrl's exploration
    scale).
    """
    if step >= steps:
        return final
    return (1.0 - step / steps) * (initial - final) + final


def decayed(kind: Decay, progress: float, final: float) -> float:
    """Factor of the learning rate at `progress` in [0, 1]: 1 at the start, `final` at the end unless constant."""
    progress = min(max(progress, 0.0), 1.0)
    if kind == "constant":
        return 1.0
    falling = 1.0 - progress if kind == "linear" else 0.5 * (1.0 + math.cos(math.pi * progress))
    return final + (1.0 - final) * falling


def falling(kind: Literal["linear", "exponential"], step: int, steps: int, initial: float, final: float) -> float:
    """Value at `step` of `linear`, or of (initial - final) exp(-step / steps) + final (DI-engine's ε schedules)."""
    if kind == "linear":
        return linear(step, steps, initial, final)
    return (initial - final) * math.exp(-step / steps) + final


def exploration_ladder(count: int, base: float, exponent: float) -> np.ndarray:
    """ε_i = base^(1 + α i / (N-1)) of N actors (Horgan et al., 2018, Ape-X, arXiv:1803.00933): some explore much, some
    hardly; one alone has `base`.
    """
    return base ** (1.0 + exponent * np.arange(count) / max(count - 1, 1))


def kl_adaptive(
    rate: float,
    kl: float | None,
    threshold: float = 0.008,
    kl_factor: float = 2.0,
    rate_factor: float = 1.5,
    lowest: float = 1e-6,
    highest: float = 1e-2,
) -> float:
    """The next learning rate that keeps a policy's step near a KL divergence (skrl's KLAdaptiveRL); None: no change."""
    if kl is None:
        return rate
    if kl > threshold * kl_factor:
        return max(rate / rate_factor, lowest)
    if kl < threshold / kl_factor:
        return min(rate * rate_factor, highest)
    return rate
