"""Minibatches of a rollout: rows, steps and metrics; `tests/golden` compares both backends by value."""

from __future__ import annotations

import numpy as np
import pytest
from policy_cases import build, gradient, rollout, small

from duetto.algorithms import PPO


class ReturnSumMetric(PPO):
    """A loss that reports the sum of the rows' returns, and learns nothing."""

    def loss(self, nets, batch, clip):
        _, value = nets.agent(batch.obs)
        return (value * 0.0).sum(), {"seen": batch.returns.sum()}


def test_each_update_uses_every_row_once_p15(backend):
    """Row i counts 2^i, so only 16 different rows sum to 2^16 - 1. The metric is the mean of 4 minibatch sums."""
    learner = build(backend, ReturnSumMetric(hidden=(8,), minibatches=4))
    one = rollout(16)._replace(returns=2.0 ** np.arange(16, dtype=np.float32))
    for _ in range(3):
        assert learner.update(one).value("seen") * 4 == 2**16 - 1
    assert (learner.optimizer_state()["agent"]["steps"], learner.updates) == (12, 3)


def test_metrics_are_means_over_the_minibatches(backend):
    """If the policy does not change, the metrics of the whole batch are the means of its minibatches' metrics."""
    options = {"learning_rate": 1e-12, "normalize_advantages": False}
    whole, parts = (build(backend, small(minibatches=n, **options)).update(rollout(32)) for n in (1, 4))
    for name in ("entropy", "value_loss", "policy_loss", "approx_kl", "clip_fraction", "agent_loss"):
        assert whole.value(name) == pytest.approx(parts.value(name), rel=1e-4, abs=1e-6), name


def test_zero_weight_rows_have_no_gradient(backend):
    """The update equals that of the other rows alone."""
    options = {"minibatches": 1, "clip_value": True, "entropy_coefficient": 0.1}
    original = rollout(24, weighted=True)
    real = original.weight > 0
    assert 0 < real.sum() < 24
    for junk in (original.advantage, np.full(24, 1e4, np.float32)):
        with_junk = original._replace(
            advantage=np.where(real, original.advantage, junk), returns=np.where(real, original.returns, junk)
        )
        without_them = type(original)(*(part[real] for part in original))
        found, wanted = (gradient(build(backend, small(**options)), batch) for batch in (with_junk, without_them))
        for name, values in wanted.items():
            np.testing.assert_allclose(found[name], values, rtol=1e-4, atol=1e-6, err_msg=name)
