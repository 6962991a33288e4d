"""N-step returns."""

from __future__ import annotations

import numpy as np


def n_step_return(
    reward: np.ndarray, terminated: np.ndarray, truncated: np.ndarray, available: np.ndarray, discount: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
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
        R (B,) float64, discount (B,) float64 and n' (B,) int.

    Raises:
        ValueError: The shapes do not match.
    """
    if not (reward.shape == terminated.shape == truncated.shape and available.shape == reward.shape[:1]):
        shapes = reward.shape, terminated.shape, truncated.shape, available.shape
        raise ValueError(f"reward, terminated, truncated and available have shapes {shapes}, not three (B, n) and (B,)")
    steps = np.arange(reward.shape[1])
    done = terminated | truncated
    to_end = np.where(done.any(axis=1), done.argmax(axis=1) + 1, len(steps))
    length = np.minimum(to_end, available)
    # `where` instead of a product with the mask, as NaN * 0 is NaN.
    summed = np.where(steps < length[:, None], reward * discount**steps, 0.0).sum(axis=1)
    ends = terminated[np.arange(len(length)), length - 1]
    return summed, np.where(ends, 0.0, discount**length), length
