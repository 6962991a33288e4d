"""TD3's equations on hand-made networks: plain functions of arrays, the same for NumPy, PyTorch and JAX."""

from types import SimpleNamespace

import numpy as np
import pytest
from array_api_compat import array_namespace

from duetto.algorithms import TD3
from duetto.algorithms.base import Batch

GAMMA = 0.99


def twins(obs, action):
    """Q1(a) = 10 + 2a and Q2(a) = 12 - a."""
    a = action[:, 0]
    return array_namespace(a).stack([10 + 2 * a, 12 - a])


def make_batch(array, reward, discount, weight=None, action=None):
    size = len(reward)
    return Batch(
        obs=array(np.zeros((size, 1))),
        action=array(np.zeros((size, 1)) if action is None else action),
        reward=array(reward),
        discount=array(discount),
        next_obs=array(np.zeros((size, 1))),
        weight=array(np.ones(size) if weight is None else weight),
    )


# SPEC O7; the arithmetic is in tests/functional/test_returns.py. σ .2, so the noise is .7 / .2, .4 / .2, -.9 / .2.
def test_o7_target_of_the_loss(array):
    policy = array([[0.3], [0.9], [-0.8], [0.3]])
    nets = SimpleNamespace(target_actor=lambda obs: policy, target_critic=twins, critic=twins)
    batch = make_batch(array, [1, 1, 1, 1], [GAMMA, GAMMA, GAMMA, 0])
    _, info = TD3().critic_loss(nets, batch, array([[3.5], [2.0], [-4.5], [3.5]]))
    np.testing.assert_allclose(info["target"], [12.088, 11.89, 8.92, 1.0], rtol=1e-6)


@pytest.mark.parametrize(
    ("values", "lower"), [(([10.7, 9.0], [11.7, 7.0]), [10.7, 7.0]), (([11.7, 7.0], [10.7, 9.0]), [10.7, 7.0])]
)
def test_the_lower_twin_counts_sample_by_sample(array, values, lower):
    nets = SimpleNamespace(
        target_actor=lambda obs: obs, target_critic=lambda obs, action: array(values), critic=lambda *_: array(values)
    )
    _, info = TD3().critic_loss(nets, make_batch(array, [0, 0], [1, 1]), array([[0], [0]]))
    np.testing.assert_allclose(info["target"], lower, rtol=1e-6)


# SPEC O7, losses. y = [1 + .99·10.7, 3] = [11.593, 3]; errors Q1 [-.593, -1], Q2 [.407, 2].
# ((.351649 + .165649) + (1 + 4)) / 2 = 2.758649; with weights [1, .5]: (.517298 + 2.5) / 2.
# Priorities (.593 + .407) / 2 and (1 + 2) / 2, not the squares [.258649, 2.5].
@pytest.mark.parametrize(("weight", "expected"), [([1, 1], 2.758649), ([1, 0.5], 1.508649)])
def test_o7_loss_and_priorities(array, weight, expected):
    nets = SimpleNamespace(
        target_actor=lambda obs: obs,
        target_critic=lambda obs, action: array([[10.7, 50], [11, 60]]),
        critic=lambda obs, action: array([[11, 2], [12, 5]]),
    )
    loss, info = TD3().critic_loss(nets, make_batch(array, [1, 3], [GAMMA, 0], weight), array([[0], [0]]))
    np.testing.assert_allclose(float(loss), expected, rtol=1e-6)
    np.testing.assert_allclose(info["priority"], [0.5, 1.5], rtol=1e-5)
    np.testing.assert_allclose(info["q"], [[11, 2], [12, 5]])


def recorded(array, algorithm, policy, noise):
    """The action that the target critics are asked about."""
    seen = []

    def target_critic(obs, action):
        seen.append(np.asarray(action))
        return twins(obs, action)

    nets = SimpleNamespace(target_actor=lambda obs: array(policy), target_critic=target_critic, critic=twins)
    size = len(policy)
    algorithm.critic_loss(nets, make_batch(array, np.zeros(size), np.ones(size)), array(noise))
    return seen[0]


def test_smoothing_noise_is_clipped_and_goes_to_the_target_action_of_each_sample_and_dimension(array):
    noise = [[0.5, -1.0], [9.0, -9.0], [2.0, 0.25]]
    action = recorded(array, TD3(), [[0.0, 0.0], [0.0, 0.0], [0.9, -0.99]], noise)
    # .2 · noise: [.1, -.2]; ±1.8 is clipped to ±.5; .9 + .4 = 1.3 ends at the bound, -.99 + .05 does not
    np.testing.assert_allclose(action, [[0.1, -0.2], [0.5, -0.5], [1.0, -0.94]], rtol=1e-6)


def test_without_target_noise_the_target_is_deterministic(array):
    action = recorded(array, TD3(target_noise=0.0), [[0.25, -0.5]], [[3.0, -3.0]])
    np.testing.assert_array_equal(action, np.array([[0.25, -0.5]], np.float32))


def test_the_noise_is_standard_normal_for_each_sample_and_dimension():
    batch = make_batch(np.asarray, np.zeros(10_000), np.zeros(10_000), action=np.zeros((10_000, 3)))
    noise = TD3().draw(np.random.default_rng(0), batch)
    assert (noise.shape, noise.dtype) == ((10_000, 3), np.float32)
    np.testing.assert_allclose(np.cov(noise.T), np.eye(3), atol=0.04)
    np.testing.assert_allclose(noise.mean(axis=0), 0, atol=0.04)


def test_the_actor_climbs_the_first_critic_only_and_unweighted(array):
    """-mean of Q1 = 10 + 2a at a = [.5, -1]: -(11 + 8) / 2. No weights, as DI-engine; nor is the ensemble asked."""
    nets = SimpleNamespace(
        actor=lambda obs: array([[0.5], [-1.0]]), critic=SimpleNamespace(q1=lambda obs, a: twins(obs, a)[0])
    )
    for weight in ([1, 1], [0.1, 0.7]):
        loss, _ = TD3().actor_loss(nets, make_batch(array, [0, 0], [0, 0], weight))
        assert float(loss) == pytest.approx(-9.5)


@pytest.mark.parametrize("field", ["reward", "discount", "weight"])
def test_c14_a_column_is_refused(array, field):
    """(B, 1) against (B,) would make a (B, B) loss without a word."""
    nets = SimpleNamespace(target_actor=lambda obs: obs, target_critic=twins, critic=twins)
    batch = make_batch(array, [1, 2, 3], [0, 0, 0])
    batch = batch._replace(**{field: getattr(batch, field)[:, None]})
    with pytest.raises(ValueError, match=r"\(3, 1\)"):
        TD3().critic_loss(nets, batch, array([[0], [0], [0]]))


def test_c14_critics_that_return_a_column_are_refused(array):
    nets = SimpleNamespace(
        target_actor=lambda obs: obs, target_critic=twins, critic=lambda obs, action: twins(obs, action)[..., None]
    )
    with pytest.raises(ValueError, match=r"q \(3, 1\)"):
        TD3().critic_loss(nets, make_batch(array, [1, 2, 3], [0, 0, 0]), array([[0], [0], [0]]))
