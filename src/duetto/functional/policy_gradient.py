"""Terms of policy-gradient losses. `weight` is 1 for samples and 0 for padding."""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace

from duetto.functional.array_ops import check_same_shape


def weighted_mean(x: Any, weight: Any) -> Any:
    """Return Σ w x / Σ w of x and w (...) over all axes, a scalar; 0 if all weights are 0."""
    check_same_shape(x=x, weight=weight)
    xp = array_namespace(x)
    return xp.sum(weight * x) / xp.clip(xp.sum(weight), 1e-8, None)


def normalized(advantage: Any, weight: Any, epsilon: float = 1e-8) -> Any:
    """(A - mean) / (std + ε) of A and w (...), same shape; a single sample gives 0.

    The standard deviation is the sample's unbiased one, as in PyTorch. Samples of weight 0 do not count.
    """
    xp = array_namespace(advantage)
    centered = advantage - weighted_mean(advantage, weight)
    squares, samples = xp.sum(weight * centered**2), xp.sum(weight)
    variance = squares / xp.clip(samples - 1.0, 1e-8, None)
    return centered / (xp.sqrt(variance) + epsilon)


def clipped_surrogate(ratio: Any, advantage: Any, clip: Any) -> Any:
    """min(ρ A, clip(ρ, 1-ε, 1+ε) A) of each sample (Schulman et al., 2017, arXiv:1707.06347, equation 7).

    `ratio`, `advantage` and the result are (...); `clip` is ε, a scalar.
    """
    check_same_shape(ratio=ratio, advantage=advantage)
    xp = array_namespace(ratio)
    return xp.minimum(ratio * advantage, xp.clip(ratio, 1.0 - clip, 1.0 + clip) * advantage)


def clipped_value_error(value: Any, old_value: Any, returns: Any, clip: Any) -> Any:
    """The larger of (V - R)² and (V_old + clip(V - V_old, ±ε) - R)² of each sample, as in OpenAI Baselines' PPO2.

    `value`, `old_value`, `returns` and the result are (...); `clip` is ε, a scalar.
    """
    check_same_shape(value=value, old_value=old_value, returns=returns)
    xp = array_namespace(value)
    near = old_value + xp.clip(value - old_value, -clip, clip)
    return xp.maximum((value - returns) ** 2, (near - returns) ** 2)
