"""Generalized advantage estimation, and the explained variance of values."""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace


def generalized_advantages(
    reward: Any,
    value: Any,
    next_value: Any,
    terminated: Any,
    truncated: Any,
    discount: float,
    trace: float,
) -> Any:
    """Generalized advantage estimation (Schulman et al., 2016, arXiv:1506.02438, equation 16)::

        δ_t = r_t + γ (1 - terminated_t) V(s'_t) - V(s_t),     A_t = δ_t + γ λ (1 - done_t) A_{t+1}

    A truncated episode counts on the value of its *final* observation; the trace is cut wherever an episode ends::

        t              0     1     2     3            terminated at 1, truncated at 2
        next_value   V(s1)   .   V(end) V(s4)         not V of the observation that the reset gave
        A_t            <-----|-----|     <---- the rollout's end

    Args:
        reward: (T, ...), r_t.
        value: (T, ...), V(s_t).
        next_value: (T, ...), V(s'_t) of the observation that the action really produced.
        terminated: (T, ...) bool, the task ended with this step.
        truncated: (T, ...) bool, the episode was cut from outside after this step.
        discount: γ.
        trace: λ.

    Returns:
        A (T, ...); of NumPy arrays float64.
    """
    xp = array_namespace(reward)
    discounts = discount * ~terminated
    advantage = reward + discounts * next_value - value
    decay = discount * trace * ~(terminated | truncated)
    # The recurrence by doubling: after k rounds A_t holds its first 2^k terms, and `decay` the product over them.
    reach, steps = 1, len(reward)
    while reach < steps:
        further = advantage[:-reach] + decay[: steps - reach] * advantage[reach:]
        advantage = xp.concat([further, advantage[steps - reach :]])
        decay = decay[:-reach] * decay[reach:]
        reach *= 2
    return advantage


def explained_variance(value: Any, returns: Any) -> Any:
    """1 - Var(R - V) / Var(R) of V and R (...): how well values predict returns, as OpenAI Baselines logs it.

    1 is a perfect prediction, 0 as good as a constant; 0 where R does not vary.
    """
    xp = array_namespace(returns)
    spread = xp.var(returns)
    return xp.where(spread > 0, 1.0 - xp.var(returns - value) / xp.where(spread > 0, spread, 1.0), 0.0)
