"""PPO's loss on hand-made policies: plain functions of arrays, the same for NumPy, PyTorch and JAX."""

from types import SimpleNamespace

import numpy as np
import pytest
from array_api_compat import array_namespace
from policy_cases import build, small

from duetto.algorithms import PPO
from duetto.algorithms.base import RolloutBatch

# SPEC O6, clip .1.
OLD, NEW = np.array([0.25, 0.5, 0.2, 0.1]), np.array([0.3, 0.4, 0.21, 0.2])
ADVANTAGE = np.array([1.0, -1, 2, -2])
OLD_VALUE, VALUE, RETURNS = np.array([1.0, 2, 3, 4]), np.array([1.05, 2.5, 2.7, 4.2]), np.array([1.5, 2.2, 2, 5])


class Fixed(SimpleNamespace):
    """A policy whose probabilities and entropies are given."""

    def log_prob(self, action):
        return self.log_probs

    def entropy(self):
        return self.entropies


def evaluate(array, junk=(), junk_then=None, **options):
    """Loss and what it reports, of O6's four rows and of rows of weight 0."""
    rows = len(junk)
    fill = [*junk]

    def column(values):
        return array([*values, *fill])

    policy = Fixed(log_probs=column(np.log(NEW)), entropies=array([1.0, 1.1, 0.9, 1.2, *fill]))
    nets = SimpleNamespace(agent=lambda obs: (policy, column(VALUE)))
    batch = RolloutBatch(
        obs=array(np.zeros((4 + rows, 1))),
        action=array(np.zeros(4 + rows)),
        log_prob=array([*np.log(OLD), *(junk if junk_then is None else junk_then)]),
        value=column(OLD_VALUE),
        advantage=column(ADVANTAGE),
        returns=column(RETURNS),
        weight=array([1] * 4 + [0] * rows),
    )
    loss, info = PPO(**{"clip_value": True, "entropy_coefficient": 0.01} | options).loss(nets, batch, array(0.1))
    return float(loss), {name: float(value) for name, value in info.items()}


# -(policy - .5 · value + .01 · 1.05). Unbiased: .2327820857 + .11953125 - .0105. The value unclipped: .425 + .08890625
# - .0105. A biased standard deviation would give .3778248494 for the first.
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
def test_o6_loss(array, options, loss, policy, value):
    found, info = evaluate(array, **options)
    assert found == pytest.approx(loss, rel=2e-6)
    assert info["policy_loss"] == pytest.approx(-policy, rel=2e-6)
    assert info["value_loss"] == pytest.approx(value, rel=2e-6)
    assert info["entropy"] == pytest.approx(1.05, rel=1e-6)


def test_o6_diagnostics(array):
    """k3 = mean(ratio - 1 - log ratio), k2 = mean(log² ratio) / 2; three of four ratios are out of [.9, 1.1]."""
    _, info = evaluate(array)
    assert info["approx_kl"] == pytest.approx(0.0872211624, rel=1e-5)
    assert info["approx_kl_k2"] == pytest.approx(0.0707334611, rel=1e-5)
    assert info["clip_fraction"] == 0.75
    assert list(info) == ["policy_loss", "value_loss", "entropy", "approx_kl", "approx_kl_k2", "clip_fraction"]


@pytest.mark.parametrize("options", [{}, {"normalize_advantages": False, "clip_value": False}])
def test_rows_of_weight_0_change_nothing(array, options):
    loss, info = evaluate(array, **options)
    with_junk, same = evaluate(array, junk=[30.0, -30.0, 7.0], **options)
    assert with_junk == pytest.approx(loss, rel=2e-6)
    assert same == pytest.approx(info, rel=1e-5)


def test_rows_of_weight_0_may_have_any_ratio(array):
    """Where an environment only resets itself, action and log-probability stand at 0; e^200 is infinite in float32."""
    loss, info = evaluate(array)
    with_junk, same = evaluate(array, junk=[200.0, -200.0], junk_then=[0.0, 0.0])
    assert with_junk == pytest.approx(loss, rel=2e-6)
    assert same == pytest.approx(info, rel=1e-5)


def test_advantages_of_the_minibatch_are_normalised_not_those_that_come_with_it(array):
    """A · 1000 + 5 is the same to it, but for ε."""
    nets = SimpleNamespace(agent=lambda obs: (Fixed(log_probs=array(np.log(NEW)), entropies=array(NEW)), array(VALUE)))

    def policy_loss(advantage):
        zeros = array(np.zeros(4))
        batch = RolloutBatch(zeros, zeros, array(np.log(OLD)), zeros, array(advantage), zeros, array(np.ones(4)))
        return float(PPO().loss(nets, batch, array(0.1))[1]["policy_loss"])

    assert policy_loss(1000 * ADVANTAGE + 5) == pytest.approx(policy_loss(ADVANTAGE), rel=1e-5)


@pytest.mark.parametrize("field", ["log_prob", "advantage", "returns", "value", "weight"])
def test_c14_a_column_is_refused(array, field):
    """(B, 1) against (B,) would make a (B, B) loss without a word."""
    ones = array(np.ones(3))
    policy = Fixed(log_probs=ones, entropies=ones)
    batch = RolloutBatch(ones, ones, ones, ones, ones, ones, ones)
    batch = batch._replace(**{field: getattr(batch, field)[:, None]})
    with pytest.raises(ValueError, match=r"equal shapes: .*\(3, [13]\)"):
        PPO(clip_value=True).loss(SimpleNamespace(agent=lambda obs: (policy, ones)), batch, array(0.1))


def test_c14_a_value_function_that_returns_a_column_is_refused(array):
    ones = array(np.ones(3))
    nets = SimpleNamespace(agent=lambda obs: (Fixed(log_probs=ones, entropies=ones), ones[:, None]))
    with pytest.raises(ValueError, match=r"equal shapes: .*value \(3, 1\)"):
        PPO().loss(nets, RolloutBatch(*[ones] * 7), array(0.1))


# ---------------------------------------------------------------------------------------------------- schedules
# SPEC P1 with 15,000 rollouts of 1,024 steps: rate and clip range fall with (1 - u / 15,000).
@pytest.mark.parametrize(
    ("rollout", "rate", "clip"), [(0, 3e-4, 0.1), (7500, 1.5e-4, 0.05), (14_999, 2e-8, 6.6666667e-6)]
)
def test_p1_schedules(backend, rollout, rate, clip):
    algorithm = small(learning_rate_decay="linear", clip_range=0.1, clip_range_decay="linear")
    progress = rollout / 15_000
    assert build(backend, algorithm).learning_rates(progress) == {"agent": pytest.approx(rate, rel=1e-6)}
    assert algorithm.scheduled(progress) == {"clip_range": pytest.approx(clip, rel=1e-6)}


# ---------------------------------------------------------------------------------------------------- minibatches
def test_every_row_once_in_each_epoch_and_each_epoch_another_way():
    algorithm, random = PPO(minibatches=4), np.random.default_rng(0)
    one, other = algorithm.split(random, 1024), algorithm.split(random, 1024)
    for rows in (one, other):
        assert (rows.shape, rows.dtype) == ((4, 256), np.int32)
        assert sorted(rows.ravel().tolist()) == list(range(1024))
    assert not np.array_equal(one, other)
    counts = np.bincount(np.concatenate([algorithm.split(random, 8)[0] for _ in range(4000)]), minlength=8)
    assert np.abs(counts - 1000).max() < 4.5 * 27.4  # of 4,000 draws at ¼: the standard deviation is √750


def test_ratios_are_of_the_actions_that_were_taken(array):
    """What the loss asks the policy about is the batch's own action."""
    asked = []

    class Asked(Fixed):
        def log_prob(self, action):
            asked.append(np.asarray(action))
            return array_namespace(action).astype(action, self.entropies.dtype)

    ones = array(np.ones(3))
    nets = SimpleNamespace(agent=lambda obs: (Asked(entropies=ones), ones))
    _, info = PPO().loss(nets, RolloutBatch(*[ones] * 7)._replace(action=array([0, 1, 2])), array(0.1))
    np.testing.assert_array_equal(asked[0], [0, 1, 2])
    assert float(info["approx_kl_k2"]) == pytest.approx((1 + 0 + 1) / 6)
