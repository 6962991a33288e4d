"""Compute learning curves: one metric over the seeds of a curve, and its confidence band.

Three seeds or more get a band: the interquartile mean over seeds and its 95 % stratified bootstrap interval (Agarwal
et al., 2021, arXiv:2108.13264; computed by rliable).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from duetto.errors import UsageError
from duetto.install_hint import install
from duetto.tools.plot.grouping import Group, Recorded, Series, groups

MIN_SEEDS = 3  # for an interval
_REPETITIONS = 2_000  # of the bootstrap


@dataclass(frozen=True)
class Curve:
    """One metric over the steps of runs that differ only in their seed."""

    label: str
    environment: str
    steps: np.ndarray  # (T,), to the end of the shortest seed
    values: np.ndarray  # (seeds, T), interpolated if the seeds were evaluated at different steps
    remark: str  # on the seed that ends it early; "" if none
    notices: tuple[str, ...]  # a sentence for each file with unreadable lines

    def last(self) -> tuple[float, float | None, float | None]:
        """Return the interquartile mean at the last step, and the ends of its interval if it has one."""
        middle, interval = interquartile(self.values[:, -1:])
        low, high = (None, None) if interval is None else interval[:, 0].tolist()
        return float(middle[0]), low, high


def curves(runs: Iterable[str | Path], metric: str = "mean_return") -> list[Curve]:
    """Return the curves of `runs`, folders of runs, grouped as `groups` does."""
    return [curve(group, metric) for group in groups(runs, metric)]


def curve(group: Group, metric: str) -> Curve:
    """Return the curve of a group. Raises UsageError if one of its seeds lacks the metric."""
    series = [member.series(metric) for member in group.members]
    notices = (*group.notices, *(each.notice for each in series if each.notice))
    return Curve(group.label, group.environment, *_joined(group.members, series), tuple(dict.fromkeys(notices)))


def _joined(group: Sequence[Recorded], series: list[Series]) -> tuple[np.ndarray, np.ndarray, str]:
    """Join series into steps (T,) and values (seeds, T); also return a remark if a seed ends them early."""
    start, end = max(each.steps[0] for each in series), min(each.steps[-1] for each in series)
    within = [(each.steps >= start) & (each.steps <= end) for each in series]
    shortest = min(range(len(series)), key=lambda i: series[i].steps[-1])  # its last step is within all others
    steps = series[shortest].steps[within[shortest]]
    if len(steps) == 0:
        raise UsageError(f"{' and '.join(map(str, group))} share no steps. Plot them one by one.")
    longer = any(each.steps[-1] > end for each in series)
    remark = f", as far as {group[shortest].name} is" if longer else ""
    if all(np.array_equal(each.steps[inside], steps) for each, inside in zip(series, within, strict=True)):
        values = [each.values[inside] for each, inside in zip(series, within, strict=True)]
    else:
        values = [np.interp(steps, *once(each.steps, each.values)) for each in series]
    return steps, np.stack(values), remark


def once(steps: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the steps (T,) with the last value of each (T,): step 0 has two, before and after pre-training."""
    last = dict(zip(steps.tolist(), values.tolist(), strict=True))
    return np.array(list(last)), np.array(list(last.values()))


def number(value: float) -> str:
    """Format a number with four significant digits, a large one without an exponent."""
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"


# ---------------------------------------------------------------------------------------------------- intervals
def interquartile_mean(values: np.ndarray) -> np.ndarray:
    """Return the mean over seeds (...) of (seeds, ...), without a quarter of the values, rounded down, at either end.

    As rliable's (Agarwal et al., 2021, arXiv:2108.13264) and SciPy's `trim_mean(values, 0.25)`. For three seeds or
    fewer it is the mean.
    """
    cut = len(values) // 4
    return np.sort(values, axis=0)[cut : len(values) - cut].mean(axis=0)


def interquartile(values: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the interquartile mean over seeds (T,) of (seeds, T), and its 95 % bootstrap interval (2, T).

    Fewer than three seeds have no interval. UsageError if rliable is not installed.
    """
    if len(values) < MIN_SEEDS:
        return interquartile_mean(values), None
    try:
        from rliable import library
    except ImportError as error:
        raise UsageError(f"Bands over seeds need rliable. Install: {install('plot')}") from error

    def middle(scores: np.ndarray) -> np.ndarray:  # (seeds, 1 task, T); rliable's own takes only one T
        return interquartile_mean(scores[:, 0])

    before = np.random.get_state()
    np.random.seed(0)  # the same runs give the same picture; arch warns if rliable gets a generator
    try:
        points, intervals = library.get_interval_estimates({"": values[:, None]}, middle, reps=_REPETITIONS)
    finally:
        np.random.set_state(before)
    return points[""], intervals[""]
