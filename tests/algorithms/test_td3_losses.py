"""TD3's losses by hand, for NumPy, PyTorch and JAX arrays."""

from types import SimpleNamespace

import numpy as np
import pytest
from learning_cases import loss_batch, twins

from duetto.algorithms import TD3

GAMMA = 0.99


# SPEC O7. σ .2, so the noise is .7 / .2, .4 / .2, -.9 / .2. Rows: .7 → .5, a' .8, Q 11.6 and 11.2, 1 + .99·11.2;
# .9 + .4 = 1.3 → 1, Q 12 and 11; -.9 → -.5, -1.3 → -1, Q 8 and 13; terminated: the reward alone.
def test_critic_target_by_hand_o7(array):
    policy = array([[0.3], [0.9], [-0.8], [0.3]])
    nets = SimpleNamespace(target_actor=lambda obs: policy, target_critic=twins, critic=twins)
    batch = loss_batch(array, [1, 1, 1, 1], [GAMMA, GAMMA, GAMMA, 0])
    _, info = TD3().critic_loss(nets, batch, array([[3.5], [2.0], [-4.5], [3.5]]))
    np.testing.assert_allclose(info["target"], [12.088, 11.89, 8.92, 1.0], rtol=1e-6)


# SPEC O7, losses. y = [1 + .99·10.7, 3] = [11.593, 3]; errors Q1 [-.593, -1], Q2 [.407, 2].
# ((.351649 + .165649) + (1 + 4)) / 2 = 2.758649; with weights [1, .5]: (.517298 + 2.5) / 2.
# Priorities (.593 + .407) / 2 and (1 + 2) / 2, not the squares [.258649, 2.5].
@pytest.mark.parametrize(("weight", "expected"), [([1, 1], 2.758649), ([1, 0.5], 1.508649)])
def test_critic_loss_and_priorities_by_hand_o7(array, weight, expected):
    nets = SimpleNamespace(
        target_actor=lambda obs: obs,
        target_critic=lambda obs, action: array([[10.7, 50], [11, 60]]),
        critic=lambda obs, action: array([[11, 2], [12, 5]]),
    )
    loss, info = TD3().critic_loss(nets, loss_batch(array, [1, 3], [GAMMA, 0], weight), array([[0], [0]]))
    np.testing.assert_allclose(float(loss), expected, rtol=1e-6)
    np.testing.assert_allclose(info["priority"], [0.5, 1.5], rtol=1e-5)
    np.testing.assert_allclose(info["q"], [[11, 2], [12, 5]])


def target_action(array, algorithm, policy, noise):
    """Return the action that the target critics evaluate."""
    seen = []

    def target_critic(obs, action):
        seen.append(np.asarray(action))
        return twins(obs, action)

    nets = SimpleNamespace(target_actor=lambda obs: array(policy), target_critic=target_critic, critic=twins)
    size = len(policy)
    algorithm.critic_loss(nets, loss_batch(array, np.zeros(size), np.ones(size)), array(noise))
    return seen[0]


def test_target_action_has_clipped_smoothing_noise_per_dimension(array):
    noise = [[0.5, -1.0], [9.0, -9.0], [2.0, 0.25]]
    action = target_action(array, TD3(), [[0.0, 0.0], [0.0, 0.0], [0.9, -0.99]], noise)
    # .2 · noise: [.1, -.2]; ±1.8 is clipped to ±.5; .9 + .4 = 1.3 ends at the bound, -.99 + .05 does not
    np.testing.assert_allclose(action, [[0.1, -0.2], [0.5, -0.5], [1.0, -0.94]], rtol=1e-6)


def test_actor_loss_uses_only_first_critic_unweighted(array):
    """-mean of Q1 = 10 + 2a at a = [.5, -1] is -(11 + 8) / 2. Weights do not count, as in DI-engine."""
    nets = SimpleNamespace(
        actor=lambda obs: array([[0.5], [-1.0]]), critic=SimpleNamespace(q1=lambda obs, a: twins(obs, a)[0])
    )
    for weight in ([1, 1], [0.1, 0.7]):
        loss, _ = TD3().actor_loss(nets, loss_batch(array, [0, 0], [0, 0], weight))
        assert float(loss) == pytest.approx(-9.5)


def test_critic_loss_rejects_column_shaped_q_c14(array):
    nets = SimpleNamespace(
        target_actor=lambda obs: obs, target_critic=twins, critic=lambda obs, action: twins(obs, action)[..., None]
    )
    with pytest.raises(ValueError, match=r"q \(3, 1\)"):
        TD3().critic_loss(nets, loss_batch(array, [1, 2, 3], [0, 0, 0]), array([[0], [0], [0]]))
