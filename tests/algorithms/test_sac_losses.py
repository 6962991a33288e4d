"""SAC's losses and one update by hand."""

from types import SimpleNamespace

import numpy as np
import pytest
import toy_networks
from descent import DESCENTS
from learning_cases import box, loss_batch, twins

from duetto.algorithms import SAC
from duetto.algorithms.base import Batch
from duetto.algorithms.sac import ActionNoisePair
from duetto.functional.distributions import SquashedGaussian

GAMMA = 0.5
LOG_ALPHA = -0.6931472  # α = .5


def test_sac_update_by_hand(backend):
    """π(s) = tanh N(θ s, 1), Q = w·[s, a] for both critics; θ = .25, w = [1, 1], α = .5; s = 1, a = .5, r = 1, s' = 2.

    Next action: before tanh .25·2 + .5 = 1, a' = tanh 1 = .7615942; 1 - a'² = .4199743, whose logarithm is -.8675617.
    log π(a'|s') = -.5·.5² - .9189385 + .8675617 = -.1763769; Q' = 2.7615942; γ = .5:
    y = 1 + .5 (2.7615942 + .5·.1763769) = 2.4248913. Q = 1.5, loss 2·.9248913² = 1.7108478, and each critic's gradient
    -2·.9248913·[1, .5] = [-1.8497827, -.9248913], so w = [1.1849783, 1.0924891].

    The actor's action: before tanh .25 + .75 = 1 again, log π = -.5·.75² - .9189385 + .8675617 = -.3326269.
    Q = 1.1849783 + 1.0924891·.7615942 = 2.0170116, loss .5·-.3326269 - 2.0170116 = -2.183325.
    With the noise fixed, d log π / dθ = 2 tanh 1 = 1.5231883 and dQ / dθ = 1.0924891·.4199743 = .4588174:
    .5·1.5231883 - .4588174 = .3027768, so θ = .2197223.

    Temperature, H̄ = -1: loss .6931472·(-.3326269 - 1) = -.9237065, gradient 1.3326269: the entropy exceeds H̄,
    so α falls: log α = -.6931472 - .1332627 = -.8264099. Targets: w' = 1 + .005·[.1849783, .0924891].
    """
    networks = {"actor_network": toy_networks.gaussian(0.25), "critic_network": toy_networks.critic(1.0)}
    algorithm = SAC(temperature=0.5, **networks)
    updater = DESCENTS[backend](algorithm, (box(1), box(1, bound=1.0)))
    s = toy_networks.single(1.0)
    given = Batch(s, 0.5 * s, reward=s[0], discount=GAMMA * s[0], next_obs=2 * s, weight=s[0])
    noise = ActionNoisePair(now=updater.array(0.75 * s), next=updater.array(0.5 * s))
    algorithm.update(updater, Batch(*map(updater.array, given[:6])), noise, 0)

    assert updater.seen["critic"][0] == pytest.approx(1.7108478, rel=1e-5)
    np.testing.assert_allclose(updater.seen["critic"][1], [-1.8497827, -0.9248913] * 2, rtol=1e-5)
    assert updater.seen["actor"][0] == pytest.approx(-2.183325, rel=1e-5)
    np.testing.assert_allclose(updater.seen["actor"][1], [0.3027768], rtol=1e-5)
    assert updater.seen["log_alpha"][0] == pytest.approx(-0.9237065, rel=1e-5)
    np.testing.assert_allclose(updater.seen["log_alpha"][1], [1.3326269], rtol=1e-5)
    np.testing.assert_allclose(updater.values("critic"), [1.1849783, 1.0924891] * 2, rtol=1e-6)
    np.testing.assert_allclose(updater.values("actor"), [0.2197223], rtol=1e-5)
    np.testing.assert_allclose(updater.values("log_alpha"), [-0.8264099], rtol=1e-5)
    np.testing.assert_allclose(updater.values("target_critic"), [1.0009249, 1.0004624] * 2, rtol=1e-6)


# ---------------------------------------------------------------------------------------------------- the losses
def policy(array, mean):
    """tanh N(mean, 1)."""
    return SquashedGaussian(array(mean), array(np.zeros_like(mean)))


def make_nets(array, mean, critic=twins, log_alpha=LOG_ALPHA):
    return SimpleNamespace(
        actor=lambda obs: policy(array, mean), target_critic=twins, critic=critic, log_alpha=array(log_alpha)
    )


# Before tanh: 0 + .5 and 1 + 0. a' = [.4621172, .7615942]; min Q' = [10 + .9242343, 12 - .7615942].
# log(1 - a'²) = [-.2402290, -.8675617]; log π = [-.125 - .9189385 + .2402290, -.9189385 + .8675617]
# = [-.8037095, -.0513768]; soft values [10.9242343 + .4018548, 11.2384058 + .0256884] = [11.3260891, 11.2640942].
SOFT = np.array([11.3260891, 11.2640942])
MEAN, NOISE = [[0.0], [1.0]], [[0.5], [0.0]]


def test_target_adds_entropy_to_lower_twin(array):
    _, info = SAC().critic_loss(make_nets(array, MEAN), loss_batch(array, [1, 2], [0.9, 0]), array(NOISE))
    np.testing.assert_allclose(info["target"], [1 + 0.9 * SOFT[0], 2], rtol=1e-6)


# With α = e^-50 the entropy term vanishes, and values are those of Q-learning, [10.9242343, 11.2384058].
def test_temperature_scales_entropy_in_target(array):
    batch, noise = loss_batch(array, [0, 0], [1, 1]), array(NOISE)
    targets = [
        np.asarray(SAC().critic_loss(make_nets(array, MEAN, log_alpha=log_alpha), batch, noise)[1]["target"])
        for log_alpha in (-50.0, LOG_ALPHA, 0.0)
    ]
    np.testing.assert_allclose(targets[0], [10.9242343, 11.2384058], rtol=1e-6)
    np.testing.assert_allclose(targets[1], SOFT, rtol=1e-6)
    np.testing.assert_allclose(targets[2], 2 * SOFT - targets[0], rtol=1e-6)


# y = [1, 3]; errors Q1 [.5, -1], Q2 [-2, 3]: (.25 + 4) and (1 + 9), mean 7.125; with weights [1, .5] 4.625.
# Priorities are means of absolute errors, (.5 + 2) / 2 and (1 + 3) / 2.
@pytest.mark.parametrize(("weight", "expected"), [([1, 1], 7.125), ([1, 0.5], 4.625)])
def test_critic_loss_and_priorities_by_hand(array, weight, expected):
    nets = make_nets(array, MEAN, critic=lambda obs, action: array([[1.5, 2], [-1, 6]]))
    loss, info = SAC().critic_loss(nets, loss_batch(array, [1, 3], [0, 0], weight), array(NOISE))
    np.testing.assert_allclose(float(loss), expected, rtol=1e-6)
    np.testing.assert_allclose(info["priority"], [1.25, 2], rtol=1e-6)


# The numbers of the target: .5·[-.8037095, -.0513768] - [10.9242343, 11.2384058], which is minus the soft values.
def test_actor_loss_is_unweighted_negative_soft_value(array):
    for weight in ([1, 1], [0.1, 0.7]):
        batch = loss_batch(array, [0, 0], [0, 0], weight)
        loss, info = SAC().actor_loss(make_nets(array, MEAN), batch, array(NOISE))
        assert float(loss) == pytest.approx(-SOFT.mean(), rel=1e-6)
        np.testing.assert_allclose(info["log_prob"], [-0.8037095, -0.0513768], rtol=1e-4)


# log α = -.6931472; log π = 1 and 3 have the mean 2; H̄ is -1 for one action dimension, -.5 with scale .5.
@pytest.mark.parametrize(("scale", "expected"), [(1.0, 0.6931472 * 1), (0.5, 0.6931472 * 1.5)])
def test_temperature_loss_by_hand(array, scale, expected):
    nets = SimpleNamespace(log_alpha=array(LOG_ALPHA))
    batch = loss_batch(array, [0, 0], [0, 0])
    loss, info = SAC(target_entropy_scale=scale).temperature_loss(nets, batch, {"log_prob": array([1, 3])})
    assert float(loss) == pytest.approx(expected, rel=1e-6)
    assert float(info["temperature"]) == pytest.approx(0.5, rel=1e-6)
