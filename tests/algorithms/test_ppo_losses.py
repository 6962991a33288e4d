"""PPO's loss by hand, for NumPy, PyTorch and JAX arrays; its schedules and minibatches."""

from types import SimpleNamespace

import numpy as np
import pytest
from policy_cases import build, small

from duetto.algorithms import PPO
from duetto.algorithms.base import RolloutBatch

# SPEC O6, clip .1.
OLD, NEW = np.array([0.25, 0.5, 0.2, 0.1]), np.array([0.3, 0.4, 0.21, 0.2])
ADVANTAGE = np.array([1.0, -1, 2, -2])
OLD_VALUE, VALUE, RETURNS = np.array([1.0, 2, 3, 4]), np.array([1.05, 2.5, 2.7, 4.2]), np.array([1.5, 2.2, 2, 5])


class FixedPolicy(SimpleNamespace):
    """A policy with given log-probabilities and entropies."""

    def log_prob(self, action):
        return self.log_probs

    def entropy(self):
        return self.entropies


def loss_and_metrics(array, junk=(), old_junk=None, **options):
    """Return the loss and its metrics for O6's four rows, plus rows of weight 0.

    The extra rows contain `junk`, and `old_junk` as old log-probabilities.
    """
    rows = len(junk)
    fill = [*junk]

    def column(values):
        return array([*values, *fill])

    policy = FixedPolicy(log_probs=column(np.log(NEW)), entropies=array([1.0, 1.1, 0.9, 1.2, *fill]))
    nets = SimpleNamespace(agent=lambda obs: (policy, column(VALUE)))
    batch = RolloutBatch(
        obs=array(np.zeros((4 + rows, 1))),
        action=array(np.zeros(4 + rows)),
        log_prob=array([*np.log(OLD), *(junk if old_junk is None else old_junk)]),
        value=column(OLD_VALUE),
        advantage=column(ADVANTAGE),
        returns=column(RETURNS),
        weight=array([1] * 4 + [0] * rows),
    )
    loss, info = PPO(**{"clip_value": True, "entropy_coefficient": 0.01} | options).loss(nets, batch, array(0.1))
    return float(loss), {name: float(value) for name, value in info.items()}


# loss = -(policy - .5 · value + .01 · 1.05). First case: .2327820857 + .11953125 - .0105; with a biased standard
# deviation it would be .3778248494. Third case, value not clipped: .425 + .08890625 - .0105.
@pytest.mark.parametrize(
    ("options", "loss", "policy", "value"),
    [
        ({}, 0.3418133357, -0.2327820857, 0.2390625),
        ({"normalize_advantages": False}, 0.53403125, -0.425, 0.2390625),
        ({"normalize_advantages": False, "clip_value": False}, 0.50340625, -0.425, 0.1778125),
        ({"normalize_advantages": False, "entropy_coefficient": 0.0}, 0.54453125, -0.425, 0.2390625),
        ({"normalize_advantages": False, "value_coefficient": 1.0}, 0.6535625, -0.425, 0.2390625),
    ],
)
def test_ppo_loss_by_hand_o6(array, options, loss, policy, value):
    found, info = loss_and_metrics(array, **options)
    assert found == pytest.approx(loss, rel=2e-6)
    assert info["policy_loss"] == pytest.approx(-policy, rel=2e-6)
    assert info["value_loss"] == pytest.approx(value, rel=2e-6)
    assert info["entropy"] == pytest.approx(1.05, rel=1e-6)


def test_kl_and_clip_fraction_by_hand_o6(array):
    """k3 = mean(ratio - 1 - log ratio), k2 = mean(log² ratio) / 2; three of four ratios are out of [.9, 1.1]."""
    _, info = loss_and_metrics(array)
    assert info["approx_kl"] == pytest.approx(0.0872211624, rel=1e-5)
    assert info["approx_kl_k2"] == pytest.approx(0.0707334611, rel=1e-5)
    assert info["clip_fraction"] == 0.75
    assert list(info) == ["policy_loss", "value_loss", "entropy", "approx_kl", "approx_kl_k2", "clip_fraction"]


def test_loss_ignores_zero_weight_rows_with_infinite_ratio(array):
    """Rows of automatic resets have action and log-probability 0. e^200 is infinite in float32."""
    loss, info = loss_and_metrics(array)
    with_junk, same = loss_and_metrics(array, junk=[200.0, -200.0], old_junk=[0.0, 0.0])
    assert with_junk == pytest.approx(loss, rel=2e-6)
    assert same == pytest.approx(info, rel=1e-5)


@pytest.mark.parametrize("field", ["log_prob", "advantage", "returns", "value", "weight"])
def test_loss_rejects_column_shaped_inputs_c14(array, field):
    """(B, 1) and (B,) would silently broadcast to a (B, B) loss."""
    ones = array(np.ones(3))
    policy = FixedPolicy(log_probs=ones, entropies=ones)
    batch = RolloutBatch(ones, ones, ones, ones, ones, ones, ones)
    batch = batch._replace(**{field: getattr(batch, field)[:, None]})
    with pytest.raises(ValueError, match=r"equal shapes: .*\(3, [13]\)"):
        PPO(clip_value=True).loss(SimpleNamespace(agent=lambda obs: (policy, ones)), batch, array(0.1))


# ---------------------------------------------------------------------------------------------------- schedules
# SPEC P1 with 15,000 rollouts of 1,024 steps: rate and clip range fall with (1 - u / 15,000).
@pytest.mark.parametrize(
    ("rollout", "rate", "clip"), [(0, 3e-4, 0.1), (7500, 1.5e-4, 0.05), (14_999, 2e-8, 6.6666667e-6)]
)
def test_learning_rate_and_clip_range_decay_linearly_p1(backend, rollout, rate, clip):
    algorithm = small(learning_rate_decay="linear", clip_range=0.1, clip_range_decay="linear")
    progress = rollout / 15_000
    assert build(backend, algorithm).learning_rates(progress) == {"agent": pytest.approx(rate, rel=1e-6)}
    assert algorithm.scheduled(progress) == {"clip_range": pytest.approx(clip, rel=1e-6)}


# ---------------------------------------------------------------------------------------------------- minibatches
def test_minibatches_shuffle_all_rows_in_each_epoch():
    algorithm, random = PPO(minibatches=4), np.random.default_rng(0)
    one, other = algorithm.split(random, 1024), algorithm.split(random, 1024)
    for rows in (one, other):
        assert (rows.shape, rows.dtype) == ((4, 256), np.int32)
        assert sorted(rows.ravel().tolist()) == list(range(1024))
    assert not np.array_equal(one, other)
    counts = np.bincount(np.concatenate([algorithm.split(random, 8)[0] for _ in range(4000)]), minlength=8)
    assert np.abs(counts - 1000).max() < 4.5 * 27.4  # 4,000 draws with probability ¼: standard deviation √750
