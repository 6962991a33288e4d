"""Returns, bootstrapped targets, and generalized advantages."""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace

from duetto.functional.array_ops import check_same_shape


def n_step_return(
    reward: Any, terminated: Any, truncated: Any, available: Any, discount: float
) -> tuple[Any, Any, Any]:
    """Return n-step returns R, cut at the end of the episode or of the data (Sutton & Barto, 2018, equation 7.1)::

        R = Σ_{k<n'} γ^k r_k
        discount = γ^n' · (1 - terminated_{n'-1})
        target = R + discount · V(s_{n'})

    A row is a window of n successive transitions. n' is the number of its transitions up to and including the first
    that terminated or was truncated, at most n and at most `available`. After a truncation, the target bootstraps from
    the episode's final observation, so the discount is not 0.

    Args:
        reward: (B, n), r_k of n transitions in time order; arbitrary, even NaN, after the first n'.
        terminated: (B, n) bool, the task ended with this transition, so the target does not bootstrap.
        truncated: (B, n) bool, the episode was cut from outside after this transition.
        available: (B,) int ≥ 1, how many of the n transitions exist; all if it exceeds n.
        discount: γ.

    Returns:
        R (B,), discount (B,) and n' (B,) int; for NumPy arrays, R and discount are float64.
    """
    xp = array_namespace(reward)
    steps = xp.arange(reward.shape[1])
    done = terminated | truncated
    to_end = xp.where(done.any(axis=1), done.argmax(axis=1) + 1, len(steps))
    length = xp.minimum(to_end, available)
    # `where` instead of a product with the mask, as NaN * 0 is NaN.
    summed = xp.where(steps < length[:, None], reward * discount**steps, 0.0).sum(axis=1)
    ends = terminated[xp.arange(len(length)), length - 1]
    return summed, xp.where(ends, 0.0, discount**length), length


def bootstrap(reward: Any, discount: Any, next_value: Any) -> Any:
    """Return the target y = r + γ V(s') (Sutton & Barto, 2018, equation 6.2).

    All arrays are (B,), or (B, L). `discount` is γ, 0 where the episode terminated. Raises ValueError if shapes differ.
    """
    check_same_shape(reward=reward, discount=discount, next_value=next_value)
    return reward + discount * next_value


def smoothed_action(action: Any, noise: Any, std: float, low: float, high: float) -> Any:
    """Return the smoothed target action a' = clip(μ'(s') + clip(σ·noise, low, high), -1, 1).

    Fujimoto et al., 2018, eq. 14. The outer clip is in the authors' code, not in the equation.

    `action`, the standard normal `noise` and the result are (B, A). Raises ValueError if shapes differ.
    """
    check_same_shape(action=action, noise=noise)
    xp = array_namespace(action)
    return xp.clip(action + xp.clip(std * noise, low, high), -1.0, 1.0)


def generalized_advantages(
    reward: Any,
    value: Any,
    next_value: Any,
    terminated: Any,
    truncated: Any,
    discount: float,
    trace: float,
) -> Any:
    """Return generalized advantage estimates (Schulman et al., 2016, arXiv:1506.02438, equation 16)::

        δ_t = r_t + γ (1 - terminated_t) V(s'_t) - V(s_t),     A_t = δ_t + γ λ (1 - done_t) A_{t+1}

    A truncated episode bootstraps from its *final* observation: the caller puts its value in `next_value`. The trace is
    cut at the end of every episode::

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
        A (T, ...); float64 for NumPy arrays.
    """
    xp = array_namespace(reward)
    discounts = discount * ~terminated
    advantage = reward + discounts * next_value - value
    decay = discount * trace * ~(terminated | truncated)
    # Doubling: after k rounds, A_t is the sum of its first 2^k terms, and `decay` is the product of 2^k factors.
    reach, steps = 1, len(reward)
    while reach < steps:
        further = advantage[:-reach] + decay[: steps - reach] * advantage[reach:]
        advantage = xp.concat([further, advantage[steps - reach :]])
        decay = decay[:-reach] * decay[reach:]
        reach *= 2
    return advantage


def explained_variance(value: Any, returns: Any) -> Any:
    """Return the explained variance 1 - Var(R - V) / Var(R), a scalar, as in OpenAI Baselines.

    It is 1 if the values V predict the returns R perfectly; 0 if V or R is constant; negative if a constant is better.
    """
    xp = array_namespace(returns)
    spread = xp.var(returns)
    return xp.where(spread > 0, 1.0 - xp.var(returns - value) / xp.where(spread > 0, spread, 1.0), 0.0)
