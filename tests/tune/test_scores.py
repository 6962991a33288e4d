"""A trial's score, computed by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import trim_mean

from duetto.algorithms import TD3
from duetto.runs.spec import RunSpec
from duetto.tools.plot.curves import interquartile_mean
from duetto.tools.tune.study import Plan, score


@pytest.mark.parametrize(
    ("values", "mean"),
    [
        ([7.0], 7.0),
        ([1.0, 3.0], 2.0),
        ([0.0, 100.0, 2000.0], 700.0),  # a quarter of three is less than one value: all count
        ([9.0, -50.0, 1.0, 3.0], 2.0),  # the lowest and the highest do not count
        ([0.0, 1.0, 4.0, 4.0, 100.0], 3.0),  # of five values, the lowest and the highest do not count
        ([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 600.0], 3.0),  # of seven values the same: (1 + 2 + 3 + 4 + 5) / 5
        ([0.0, 0.0, 2.0, 2.0, 4.0, 4.0, 90.0, 91.0], 3.0),
    ],
)
def test_interquartile_mean_by_hand(values: list[float], mean: float):
    assert interquartile_mean(np.array(values)) == pytest.approx(mean)
    assert interquartile_mean(np.array(values[::-1])) == pytest.approx(mean)
    assert float(trim_mean(values, 0.25)) == pytest.approx(mean)  # rliable uses trim_mean


@pytest.mark.parametrize(
    ("steps", "every", "last"), [(10, 20, 1), (70, 10, 1), (80, 10, 2), (120, 10, 3), (9999, 1, 3)]
)
def test_score_window_is_last_quarter_but_at_most_three(steps: int, every: int, last: int):
    config: Any = SimpleNamespace(run=SimpleNamespace(steps=steps, evaluate_every=every))
    assert Plan(RunSpec(TD3(), "Pendulum-v1"), config, {}, (0, 1, 2), True).window == last


def test_score_is_mean_of_the_last_evaluations():
    evaluations = {10: 1.0, 20: 2.0, 30: 6.0, 40: 100.0}
    assert score(evaluations, 30, 2) == 4.0
    assert score(evaluations, 10, 3) == 1.0
    assert score(evaluations, 40, 1) == 100.0
