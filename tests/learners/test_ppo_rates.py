"""PPO's learning rate: adaptation to the KL divergence, alone and with a schedule. SPEC O13."""

import numpy as np
import pytest
from policy_cases import build, rollout, small

from duetto.functional.schedules import kl_adaptive


def update_with_kl(learner, divergence):
    """Make an update whose approx_kl is about `divergence`: there is one minibatch, and all ratios ρ are equal.

    k3 = ρ - 1 - log ρ is about x²/2 for x = log ρ.
    """
    one = rollout(32)
    action, extras = learner.collect(one.obs, np.zeros((32, 4), np.float32))
    shifted = extras["log_prob"] + np.float32(np.sqrt(2 * divergence))
    return learner.update(one._replace(action=action, log_prob=shifted))


def test_mean_kl_adapts_learning_rate_once_per_epoch(backend):
    learner = build(backend, small(learning_rate=1e-3, learning_rate_kl=0.008, minibatches=4))
    rate = 1e-3
    for seed in range(4):
        metrics = learner.update(rollout(seed=seed))
        rate = kl_adaptive(rate, metrics.value("approx_kl"), 0.008)
        assert learner.learning_rates(0.0)["agent"] == rate
    assert rate != 1e-3


def test_kl_factor_multiplies_schedule_and_survives_checkpoint(backend):
    """Halfway through a linear decay, after a large divergence: 1e-3 / 1.5 / 2. The other backend loads the state."""
    algorithm = small(learning_rate=1e-3, learning_rate_kl=0.008, learning_rate_decay="linear", minibatches=1)
    learner, again = build(backend, algorithm), build({"torch": "jax", "jax": "torch"}[backend], algorithm, seed=1)
    update_with_kl(learner, 0.02)
    again.load_state_dict(learner.state_dict())
    assert again.learning_rates(0.5) == learner.learning_rates(0.5) == {"agent": pytest.approx(1e-3 / 3)}
