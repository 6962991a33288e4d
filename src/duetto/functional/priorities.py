"""Proportional prioritized replay (Schaul et al., 2016, arXiv:1511.05952, section 3.3 and 3.4).

A buffer stores the *mass* p^α of every item; an item's probability is its mass over the sum of all masses.
"""

from __future__ import annotations

import numpy as np


def mass(priority: np.ndarray, exponent: float) -> np.ndarray:
    """Return the masses p^α of priorities p (...); sampling probabilities are p_i^α / Σ_k p_k^α (equation 1)."""
    return priority**exponent


def importance_weights(mass: np.ndarray, smallest: np.ndarray | float, exponent: float) -> np.ndarray:
    """Return the importance weights (N · P(i))^-β / max_k (N · P(k))^-β of the sampled items.

    They equal (smallest / mass_i)^β, because N and the sum of the masses cancel.

    Args:
        mass: (B,), p^α > 0 of the sampled items, or their probabilities.
        smallest: the smallest mass of all stored items (or of the batch), whose weight is 1.
        exponent: β; 0 makes all weights 1.

    Returns:
        (B,) in (0, 1].
    """
    return (smallest / mass) ** exponent


def annealed_exponent(start: float, sampled: int, anneal_samples: int) -> float:
    """Return the exponent β of importance weights for the next batch, after `sampled` batches.

    β increases linearly from `start` to 1 over `anneal_samples` batches (section 3.4). If `anneal_samples` is 0, β
    stays at `start`.
    """
    if anneal_samples == 0:
        return start
    return start + (1.0 - start) * min(1.0, sampled / anneal_samples)


def sequence_priority(error: np.ndarray, mask: np.ndarray, mix: float) -> np.ndarray:
    """Return sequences' priorities `η max_t |δ_t| + (1-η) mean_t |δ_t|`, where t are the steps in the loss.

    Kapturowski et al., 2019, R2D2, section 2.3.

    Args:
        error: (B, L), `|δ|`; ignored, even if NaN, where the mask is 0.
        mask: (B, L), 1 for the steps in the loss; a row of zeros has the priority 0.
        mix: η.

    Returns:
        (B,) float64.
    """
    counted = np.where(mask > 0, error, 0.0)
    return mix * counted.max(axis=1) + (1.0 - mix) * counted.sum(axis=1) / np.maximum(np.count_nonzero(mask, axis=1), 1)
