"""The score of a trial: one number, of several seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from duetto.display import plotting

LAST = 3  # evaluations that a seed's score is the mean of, where there are enough


def interquartile_mean(values: Sequence[float]) -> float:
    """The interquartile mean as `duetto plot` and `duetto sweep` take it; of three seeds or fewer their mean."""
    return float(plotting.interquartile_mean(np.asarray(values, np.float64)))


def window(steps: int, every: int) -> int:
    """The number of evaluations in a seed's score: the last quarter of a run's, at least one and at most three.

    One evaluation is of one policy, which may be a lucky one among those before and after it; to choose the best of
    fifty trials by it would be to choose luck.
    """
    return min(max(1, steps // every // 4), LAST)


def score(evaluations: Mapping[int, float], step: int, last: int) -> float:
    """A seed's score at `step`: the mean of its last evaluations (by steps, that of step 0 excluded) until then."""
    until = [evaluations[at] for at in sorted(evaluations) if at <= step]
    return float(np.mean(until[-last:]))
