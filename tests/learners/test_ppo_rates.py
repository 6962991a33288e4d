"""PPO's learning rate: what follows the divergence, what follows the run, and both together. SPEC O13."""

import numpy as np
import pytest
from policy_cases import build, rollout, small

from duetto.functional.schedules import kl_adaptive


def diverging(learner, divergence):
    """An update whose approx_kl is about this: the first minibatch is the only one, and ratios are all the same.

    k3 = ρ - 1 - log ρ, of log ρ = x about x²/2.
    """
    one = rollout(32)
    action, extras = learner.collect(one.obs, np.zeros((32, 4), np.float32))
    shifted = extras["log_prob"] + np.float32(np.sqrt(2 * divergence))
    return learner.update(one._replace(action=action, log_prob=shifted))


# Threshold .008: above .016 the rate is divided by 1.5, below .004 multiplied, between it stays.
@pytest.mark.parametrize(("divergence", "expected"), [(0.02, 6.6666667e-4), (0.01, 1e-3), (0.003, 1.5e-3)])
def test_o13_the_rate_follows_the_divergence(backend, divergence, expected):
    learner = build(backend, small(learning_rate=1e-3, learning_rate_kl=0.008, minibatches=1))
    assert learner.learning_rates(0.0) == {"agent": 1e-3}
    metrics = diverging(learner, divergence)
    assert metrics.value("approx_kl") == pytest.approx(divergence, rel=0.1)
    assert learner.learning_rates(0.0)["agent"] == pytest.approx(expected, rel=1e-6)


def test_the_mean_over_the_minibatches_decides_once_an_epoch(backend):
    learner = build(backend, small(learning_rate=1e-3, learning_rate_kl=0.008, minibatches=4))
    rate = 1e-3
    for seed in range(4):
        metrics = learner.update(rollout(seed=seed))
        rate = kl_adaptive(rate, metrics.value("approx_kl"), 0.008)
        assert learner.learning_rates(0.0)["agent"] == rate
    assert rate != 1e-3


def test_both_schedules_multiply(backend):
    """Half-way through a linear decay, after a large divergence: 1e-3 / 1.5 / 2."""
    learner = build(
        backend, small(learning_rate=1e-3, learning_rate_kl=0.008, learning_rate_decay="linear", minibatches=1)
    )
    diverging(learner, 0.02)
    assert learner.learning_rates(0.5)["agent"] == pytest.approx(1e-3 / 3, rel=1e-6)


def test_it_survives_a_checkpoint(backend):
    """And goes to the other backend."""
    algorithm = small(learning_rate=1e-3, learning_rate_kl=0.008, minibatches=1)
    learner, again = build(backend, algorithm), build({"torch": "jax", "jax": "torch"}[backend], algorithm, seed=1)
    diverging(learner, 0.02)
    again.load_state_dict(learner.state_dict())
    assert again.learning_rates(0.0) == learner.learning_rates(0.0) == {"agent": pytest.approx(1e-3 / 1.5)}
