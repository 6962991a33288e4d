"""Targets of value functions."""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace

from duetto.functional.array_ops import check_same_shape


def bootstrap(reward: Any, discount: Any, next_value: Any) -> Any:
    """y = r + γ V(s'), all of one shape, (B,) or (B, L) (Sutton & Barto, 2018, the target of equation 6.2).

    `discount` is γ, 0 where the episode terminated. Raises ValueError if shapes differ.
    """
    check_same_shape(reward=reward, discount=discount, next_value=next_value)
    return reward + discount * next_value


def smoothed_action(action: Any, noise: Any, std: float, low: float, high: float) -> Any:
    """Target policy smoothing, a' = clip(μ'(s') + clip(σ·noise, low, high), -1, 1) (Fujimoto et al., 2018, eq. 14).

    The outer clip is the authors' code's, not the equation's.

    `action`, the standard normal `noise` and the result are (B, A). Raises ValueError if shapes differ.
    """
    check_same_shape(action=action, noise=noise)
    xp = array_namespace(action)
    return xp.clip(action + xp.clip(std * noise, low, high), -1.0, 1.0)
