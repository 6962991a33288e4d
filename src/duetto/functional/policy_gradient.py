"""Terms of policy-gradient losses. `weight` is 1 for samples and 0 for padding."""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace

from duetto.functional.array_ops import check_same_shape


def weighted_mean(x: Any, weight: Any) -> Any:
    """Return the scalar Σ w x / Σ w over all axes, or 0 if all weights are 0. `x` and `weight` w are (...)."""
    check_same_shape(x=x, weight=weight)
    xp = array_namespace(x)
    return xp.sum(weight * x) / xp.clip(xp.sum(weight), 1e-8, None)


def normalized(advantage: Any, weight: Any, epsilon: float = 1e-8) -> Any:
    """Return the advantages as (A - mean) / (std + ε); a single sample gives 0.

    `advantage`, `weight` and the result have the same shape (...). The std is from the unbiased variance, as in
    PyTorch. Samples with weight 0 do not affect mean and std.
    """
    xp = array_namespace(advantage)
    centered = advantage - weighted_mean(advantage, weight)
    squares, samples = xp.sum(weight * centered**2), xp.sum(weight)
    variance = squares / xp.clip(samples - 1.0, 1e-8, None)
    return centered / (xp.sqrt(variance) + epsilon)


def clipped_surrogate(ratio: Any, advantage: Any, clip: Any) -> Any:
    """Return min(ρ A, clip(ρ, 1-ε, 1+ε) A) of each sample (Schulman et al., 2017, arXiv:1707.06347, equation 7).

    `ratio`, `advantage` and the result are (...); `clip` is ε, a scalar.
    """
    check_same_shape(ratio=ratio, advantage=advantage)
    xp = array_namespace(ratio)
    return xp.minimum(ratio * advantage, xp.clip(ratio, 1.0 - clip, 1.0 + clip) * advantage)


def clipped_value_error(value: Any, old_value: Any, returns: Any, clip: Any) -> Any:
    """Return the larger of (V - R)² and (V_old + clip(V - V_old, ±ε) - R)² (OpenAI Baselines' PPO2).

    `value`, `old_value`, `returns` and the result are (...); `clip` is ε, a scalar.
    """
    check_same_shape(value=value, old_value=old_value, returns=returns)
    xp = array_namespace(value)
    near = old_value + xp.clip(value - old_value, -clip, clip)
    return xp.maximum((value - returns) ** 2, (near - returns) ** 2)
