"""N-step returns."""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace


def n_step_return(
    reward: Any, terminated: Any, truncated: Any, available: Any, discount: float
) -> tuple[Any, Any, Any]:
    """Sum each window's rewards up to the end of its episode or of the data (Sutton & Barto, 2018, equation 7.1)::

        R = Σ_{k<n'} γ^k r_k
        discount = γ^n' · (1 - terminated_{n'-1})
        target = R + discount · V(s_{n'})

    n' ≤ n counts the transitions up to and including the first that terminated or was truncated, and never more than
    `available`. A truncated window looks ahead from the final observation of its episode, so it keeps its discount.

    Args:
        reward: (B, n), r_k of n transitions in time order; anything, also NaN, after the window's end.
        terminated: (B, n) bool, the task ended with this transition: no future counts.
        truncated: (B, n) bool, the episode was cut from outside after this transition.
        available: (B,) int in 1 .. n or more, how many of the n transitions exist.
        discount: γ.

    Returns:
        R (B,), discount (B,) and n' (B,) int; of NumPy arrays R and discount are float64.
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
