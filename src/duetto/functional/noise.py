"""Exploration noise as pure functions of standard normal numbers."""

from __future__ import annotations

from typing import Any


def ornstein_uhlenbeck(x: Any, normal: Any, theta: float, sigma: float, dt: float = 0.0) -> Any:
    """The next value of a mean-reverting process around 0 (Uhlenbeck & Ornstein, 1930): x and `normal` (...) to (...).

    With `dt` = 0, x + σ·normal - θ·x, the form of skrl (stationary std σ / √(1 - (1-θ)²)); otherwise the
    Euler-Maruyama step x - θ x dt + σ √dt · normal of the DDPG paper's process.
    """
    if dt == 0.0:
        return x - theta * x + sigma * normal
    return x - theta * x * dt + sigma * dt**0.5 * normal
