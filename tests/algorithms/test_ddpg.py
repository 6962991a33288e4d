"""SPEC O16, and what makes DDPG DDPG. The learners' side of it: tests/learners."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import toy_networks
from descent import DESCENTS
from learning_cases import box

from duetto.algorithms import DDPG
from duetto.algorithms.base import Batch
from duetto.errors import UsageError
from duetto.networks.spaces import Discrete, MultiDiscrete

EVERYTHING = {"actor", "critic", "target_actor", "target_critic"}


def test_o16_one_update_of_gradient_descent(backend):
    """Q = w·[s, a] with w = [1, 1], μ(s) = .5 s; s = 1, a = 1, r = 1, s' = 2, γ = .99.

    a' = 1, Q' = 3, y = 1 + .99·3 = 3.97; Q = 2; loss 1.97² = 3.8809; gradient 2·(-1.97)·[1, 1] = [-3.94, -3.94], so
    w = [1.394, 1.394]. The actor climbs that: dQ/dθ = w_a·s = 1.394, θ = .5 + .1394 = .6394. The targets, τ .005:
    w' = 1 + .005·.394 = 1.00197, θ' = .5 + .005·.1394 = .500697.
    """
    algorithm = DDPG(actor_network=toy_networks.actor(0.5), critic_network=toy_networks.critic(1.0))
    updater = DESCENTS[backend](algorithm, (box(1), box(1, bound=1.0)))
    s = a = toy_networks.single(1.0)
    batch = Batch(s, a, reward=s[0], discount=0.99 * s[0], next_obs=2 * s, weight=s[0])
    algorithm.update(updater, Batch(*map(updater.array, batch[:6])), (), 0)
    assert updater.seen["critic"][0] == pytest.approx(3.8809, rel=1e-6)
    np.testing.assert_allclose(updater.seen["critic"][1], [-3.94, -3.94], rtol=1e-6)
    np.testing.assert_allclose(updater.seen["actor"][1], [-1.394], rtol=1e-6)
    np.testing.assert_allclose(updater.values("critic"), [1.394, 1.394], rtol=1e-6)
    np.testing.assert_allclose(updater.values("actor"), [0.6394], rtol=1e-6)
    np.testing.assert_allclose(updater.values("target_critic"), [1.00197, 1.00197], rtol=1e-6)
    np.testing.assert_allclose(updater.values("target_actor"), [0.500697], rtol=1e-6)


def test_the_td_error_of_hand_made_networks(array):
    """y = [1 + .99·10, 3] = [10.9, 3]; Q [11, 2]; errors [.1, -1]; weights [1, .5]: (.01 + .5) / 2 = .255."""
    nets = SimpleNamespace(
        target_actor=lambda obs: obs,
        target_critic=lambda obs, action: array([[10.0, 50.0]]),
        critic=lambda obs, action: array([[11.0, 2.0]]),
    )
    columns = array(np.zeros((2, 1)))
    rows = (array([1.0, 3.0]), array([0.99, 0.0]))
    loss, info = DDPG().critic_loss(nets, Batch(columns, columns, *rows, columns, array([1.0, 0.5])), ())
    np.testing.assert_allclose(info["target"], [10.9, 3.0], rtol=1e-6)
    np.testing.assert_allclose(info["priority"], [0.1, 1.0], rtol=1e-5)
    assert float(loss) == pytest.approx(0.255, rel=1e-5)


def test_c14_a_column_is_refused(array):
    nets = SimpleNamespace(
        target_actor=lambda obs: obs, target_critic=lambda *_: array([[1, 2]]), critic=lambda *_: array([[1, 2]])
    )
    column, row = array([[1], [2]]), array([1, 2])
    for field in ("reward", "discount", "weight"):
        one = Batch(column, column, row, row, column, row)._replace(**{field: column})
        with pytest.raises(ValueError, match=r"\(2, 1\)"):
            DDPG().critic_loss(nets, one, ())


# ------------------------------------------------------------------------------------------------ acting
def act(policy, noise, array):
    return DDPG().act(SimpleNamespace(actor=lambda obs: obs), array(policy), None if noise is None else array(noise))


def test_actions_with_noise_stay_in_the_range(array):
    np.testing.assert_allclose(act([[0.5, -0.9]], [[0.2, -0.4]], array), [[0.7, -1.0]], rtol=1e-6)
    np.testing.assert_array_equal(act([[0.5, -0.9]], None, array), np.array([[0.5, -0.9]], np.float32))


def test_pitfall_7_the_networks_output_is_not_changed_in_place(array):
    policy = array([[0.5]])
    DDPG().act(SimpleNamespace(actor=lambda obs: policy), policy, array([[0.25]]))
    assert float(policy[0, 0]) == 0.5


def test_c23_one_noise_value_for_all_dimensions_is_refused(array):
    with pytest.raises(ValueError, match=r"noise \(1, 1\)"):
        act([[0.5, -0.9]], [[0.2]], array)


# ------------------------------------------------------------------------------------------------ spaces
@pytest.mark.parametrize("action", [Discrete(2), MultiDiscrete((2, 3))])
def test_c8_other_actions_than_box_are_refused_by_name(action):
    with pytest.raises(UsageError) as refusal:
        DDPG().check_spaces(box(4), action, "CartPole-v1")
    assert str(refusal.value) == f"ddpg needs a continuous action space (Box); CartPole-v1 has {action}."


def test_images_need_networks_of_their_own():
    image = box(3, 8, 8, dtype="uint8")
    with pytest.raises(UsageError, match=r"ddpg takes vectors; Camera-v0 observes Box\(3, 8, 8\), an image"):
        DDPG().check_spaces(image, box(1, bound=1.0), "Camera-v0")
    own = DDPG(actor_network=toy_networks.actor(), critic_network=toy_networks.critic())
    own.check_spaces(image, box(1, bound=1.0), "Camera-v0")
