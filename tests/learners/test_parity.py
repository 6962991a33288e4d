"""Both backends compute the same values from the same seed and batches; `tests/golden` has all algorithms."""

from __future__ import annotations

import numpy as np
import pytest
from learning_cases import ACTION, VECTOR, batch, build, observations, small

from duetto.algorithms import TD3
from duetto.testing.conformance import flat


@pytest.mark.parametrize("kind", [TD3], ids=["plain-TD3"])
def test_both_backends_compute_the_same(kind):
    """Compares metrics, parameters, moments and actions at the start and after 1, 2 and 50 updates."""
    pair = [build(backend, small(kind)) for backend in ("torch", "jax")]
    compare_state(pair, 0.0)
    random = np.random.default_rng(7)
    for number in range(1, 51):
        metrics = [learner.update(batch(48, seed=number)) for learner in pair]
        if number in (1, 2, 50):
            tolerance = 1e-5 if number <= 2 else 1e-3
            compare_metrics(metrics, tolerance)
            compare_state(pair, tolerance)
            obs, noise = observations(VECTOR, 40, random), random.normal(size=(40, ACTION.size)).astype(np.float32)
            for given in (None, noise):
                close(*(learner.act(obs, given) for learner in pair), tolerance, "actions")


def compare_metrics(metrics, tolerance):
    ours, theirs = metrics
    assert ours.names == theirs.names
    close(ours.values, theirs.values, tolerance, "metrics")
    close(ours.priority, theirs.priority, tolerance, "priority")


def compare_state(pair, tolerance):
    """Compare parameters and Adam's two moments."""
    ours, theirs = (flat({"net": learner.parameters(), "adam": learner.optimizer_state()}) for learner in pair)
    assert list(ours) == list(theirs)
    for name, values in ours.items():
        # A gradient that is 0 in exact arithmetic is rounding error, about 1e-12.
        floor = 1e-5 if "/first/" in name else 1e-13 if "/second/" in name else 0.0
        close(values, theirs[name], tolerance, name, floor)


def close(ours, theirs, tolerance, name, floor=0.0):
    """Compare relative to the largest element (or `floor`), because Adam's steps do not shrink with an element."""
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    assert ours.shape == theirs.shape, name
    scale = max(floor, np.abs(ours).max()) if ours.size else 0.0
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * scale, err_msg=name)


def test_metrics_report_mean_min_and_max(backend):
    """The targets of terminated transitions are the rewards."""
    one = batch(4)._replace(reward=np.array([1, 2, 3, 6], np.float32), discount=np.zeros(4, np.float32))
    metrics = build(backend, small()).update(one)
    found = dict(zip(metrics.names, np.asarray(metrics.values).tolist(), strict=True))
    assert (found["target_mean"], found["target_min"], found["target_max"]) == (3.0, 1.0, 6.0)
