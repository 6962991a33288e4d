"""DDPG: one update by hand (SPEC O16), noisy actions, and spaces."""

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


def test_ddpg_update_by_hand_o16(backend):
    """Q = w·[s, a] with w = [1, 1], μ(s) = .5 s; s = 1, a = 1, r = 1, s' = 2, γ = .99.

    a' = 1, Q' = 3, y = 1 + .99·3 = 3.97; Q = 2; loss 1.97² = 3.8809; gradient 2·(-1.97)·[1, 1] = [-3.94, -3.94], so
    w = [1.394, 1.394]. The actor's gradient is dQ/dθ = w_a·s = 1.394, θ = .5 + .1394 = .6394. The targets, τ .005:
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


# ------------------------------------------------------------------------------------------------ acting
def act(policy, noise, array):
    return DDPG().act(SimpleNamespace(actor=lambda obs: obs), array(policy), None if noise is None else array(noise))


def test_noisy_actions_are_clipped_to_bounds(array):
    np.testing.assert_allclose(act([[0.5, -0.9]], [[0.2, -0.4]], array), [[0.7, -1.0]], rtol=1e-6)
    np.testing.assert_array_equal(act([[0.5, -0.9]], None, array), np.array([[0.5, -0.9]], np.float32))


def test_noise_shared_by_dimensions_is_rejected_c23(array):
    with pytest.raises(ValueError, match=r"noise \(1, 1\)"):
        act([[0.5, -0.9]], [[0.2]], array)


# ------------------------------------------------------------------------------------------------ spaces


def test_image_observations_require_custom_networks():
    image = box(3, 8, 8, dtype="uint8")
    with pytest.raises(UsageError, match=r"ddpg takes vectors; Camera-v0 observes Box\(3, 8, 8\), an image"):
        DDPG().check_spaces(image, box(1, bound=1.0), "Camera-v0")
    own = DDPG(actor_network=toy_networks.actor(), critic_network=toy_networks.critic())
    own.check_spaces(image, box(1, bound=1.0), "Camera-v0")
