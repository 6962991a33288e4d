"""How good a trial is: one number, of several seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

LAST = 3  # evaluations that a seed's score is the mean of, where there are enough


def interquartile_mean(values: Sequence[float]) -> float:
    """Mean of the middle half of the values, also where their number is no multiple of four (Agarwal et al., 2021).

    Of n sorted values a quarter of n is cut away at either end, in part where that is no whole number: of three, the
    outer ones count a quarter each. So of one it is that one, of two their mean.
    """
    ordered = np.sort(np.asarray(values, np.float64))
    count = len(ordered)
    edges = np.arange(count + 1)
    low, high = count / 4, 3 * count / 4
    weights = np.clip(edges[1:], low, high) - np.clip(edges[:-1], low, high)
    return float(weights @ ordered / weights.sum())


def window(steps: int, every: int) -> int:
    """Over how many evaluations a seed's score goes: the last quarter of a run's, at least one and at most three.

    One evaluation is of one policy, which may be a lucky one among those before and after it; to choose the best of
    fifty trials by it would be to choose luck.
    """
    return min(max(1, steps // every // 4), LAST)


def score(evaluations: Mapping[int, float], step: int, last: int) -> float:
    """A seed's score at `step`: the mean of its last evaluations (by steps, that of step 0 excluded) until then."""
    until = [evaluations[at] for at in sorted(evaluations) if at <= step]
    return float(np.mean(until[-last:]))
