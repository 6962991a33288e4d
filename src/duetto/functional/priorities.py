"""Proportional prioritised replay (Schaul et al., 2016, arXiv:1511.05952, section 3.3 and 3.4).

A memory keeps the *mass* p^α of every item; the probability of an item is its mass over the sum of all masses.
"""

from __future__ import annotations

import numpy as np


def mass(priority: np.ndarray, exponent: float) -> np.ndarray:
    """p^α, to which the probability P(i) = p_i^α / Σ_k p_k^α is proportional; with α = 0 all items are alike."""
    return priority**exponent


def importance_weights(mass: np.ndarray, smallest: np.ndarray | float, exponent: float) -> np.ndarray:
    """(N · P(i))^-β / max_k (N · P(k))^-β, which is (smallest / mass_i)^β: N and the sum of the masses cancel.

    Args:
        mass: (B,), p^α > 0 of the sampled items, or their probabilities.
        smallest: the least mass of all stored items (or of the batch), in the same unit: it has the largest weight, 1.
        exponent: β; 0 makes all weights 1.

    Returns:
        (B,) in (0, 1].
    """
    return (smallest / mass) ** exponent


def annealed_exponent(start: float, sampled: int, anneal_samples: int) -> float:
    """β for the batch drawn after `sampled` earlier ones: linear from `start` to 1 over `anneal_samples` batches.

    With `anneal_samples` 0 it stays at `start`.
    """
    if anneal_samples == 0:
        return start
    return start + (1.0 - start) * min(1.0, sampled / anneal_samples)
