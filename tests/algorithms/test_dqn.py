"""DQN's and R2D2's losses, targets and exploration by hand: SPEC O2, O11, O15, R8, R10."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from duetto.algorithms import DQN, R2D2
from duetto.algorithms.base import Batch
from duetto.networks.spaces import Discrete

CHOICE = Discrete(3)


def nets(online, target):
    """Return networks with the given action values for observations "s" and "s'"."""
    return SimpleNamespace(q=lambda obs: np.array(online[obs]), target_q=lambda obs: np.array(target[obs]))


def batch(action, reward, discount, weight):
    one = np.array
    return Batch("s", one(action), one(reward), one(discount), "s'", one(weight))


TWO_ROWS = nets(
    {"s": [[1.0, 2, 1.5], [0, 1, 0]], "s'": [[2.0, 4, 3], [1, 5, 3]]},
    {"s'": [[1.5, 3, 5], [10, 2, 7]]},
)


def test_dqn_loss_by_hand():
    """y = 1 + .9 · 3 = 3.7 and 2 (terminated); Q = 2 and 0; errors -1.7 and -2; weights 1 and .5.

    Squares 2.89 and 4; Huber losses 1.2 and 1.5.
    """
    one = batch([1, 0], [1.0, 2.0], [0.9, 0.0], [1.0, 0.5])
    loss, info = DQN(huber_delta=0.0).loss(TWO_ROWS, one)
    assert loss == pytest.approx((2.89 + 0.5 * 4) / 2)
    np.testing.assert_allclose(info["priority"], [1.7, 2.0])
    loss, _ = DQN(huber_delta=1.0).loss(TWO_ROWS, one)
    assert loss == pytest.approx((1.2 + 0.5 * 1.5) / 2)


@pytest.mark.parametrize(("epsilon", "y"), [(1e-3, 2.47906165), (1e-2, 2.53311491)])
def test_rescaled_targets_o2(epsilon, y):
    """r = [1, 2, 3], γ = .9: R = 1 + 1.8 + 2.43 = 5.23, discount .729; the target network's value is 2."""
    two = nets({"s'": [[0.0, 1.0]]}, {"s'": [[9.0, 2.0]]})
    algorithm = R2D2(rescale_epsilon=epsilon)
    assert algorithm.target(two, np.array([5.23]), np.array([0.729]), "s'")[0] == pytest.approx(y, abs=1e-8)


def test_epsilon_ladder_by_hand_o11():
    np.testing.assert_allclose(
        R2D2().explorer().schedule(0, 0, 8),
        [0.4, 0.16, 0.064, 0.0256, 0.01024, 0.004096, 0.0016384, 0.00065536],
        rtol=1e-6,
    )
    np.testing.assert_allclose(
        R2D2().explorer().schedule(9, 0, 4), [0.4, 0.0471556032, 0.0055591273, 0.00065536], rtol=1e-6
    )
    np.testing.assert_allclose(R2D2().explorer().schedule(0, 0, 1), [0.4])


@pytest.mark.parametrize(
    ("step", "epsilon"), [(0, 0.95), (10_000, 0.8643536762), (100_000, 0.3810914971), (500_000, 0.0560641523)]
)
def test_exponential_epsilon_decay_o11(step, epsilon):
    falling = DQN(exploration="exponential", exploration_start=0.95, exploration_end=0.05, exploration_steps=100_000)
    np.testing.assert_allclose(falling.explorer().schedule(step, 0, 2), [epsilon] * 2, rtol=1e-8)


def test_environments_explore_independently_r24():
    """ε = .3 and three actions: -1 in 70 % of the draws, each action in 10 %; two environments are independent."""
    algorithm = DQN(exploration_start=0.3, exploration_end=0.3)
    random, state = np.random.default_rng(0), np.zeros((2, 3), np.float32)
    drawn = np.stack([algorithm.explorer().draw(random, state, 0, 1, CHOICE)[0][:, 0] for _ in range(20_000)])
    for value, share in ((-1, 0.7), (0, 0.1), (1, 0.1), (2, 0.1)):
        np.testing.assert_allclose((drawn == value).mean(axis=0), share, atol=0.01)
    explores = drawn >= 0
    assert (explores[:, 0] & explores[:, 1]).mean() == pytest.approx(0.09, abs=0.01)


def test_noise_overrides_the_greedy_action():
    three = SimpleNamespace(q=lambda obs: np.array([[1.0, 5, 3], [4, 0, 0], [0, 0, 9]]))
    np.testing.assert_array_equal(DQN().act(three, "s", np.array([[-1], [2], [0]])), [1, 2, 0])
    np.testing.assert_array_equal(DQN().act(three, "s", None), [1, 0, 2])
