"""DQN's and R2D2's maths by hand: SPEC O2, O11, O15, R8, R10."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from duetto.algorithms import DQN, R2D2
from duetto.algorithms.base import Batch
from duetto.errors import UsageError
from duetto.networks.spaces import Box, Discrete

CHOICE = Discrete(3)


def nets(online, target):
    """Networks that give the same action values for the one observation "s" and for the next, "s'"."""
    return SimpleNamespace(q=lambda obs: np.array(online[obs]), target_q=lambda obs: np.array(target[obs]))


def batch(action, reward, discount, weight):
    one = np.array
    return Batch("s", one(action), one(reward), one(discount), "s'", one(weight))


TWO = nets(
    {"s": [[1.0, 2, 1.5], [0, 1, 0]], "s'": [[2.0, 4, 3], [1, 5, 3]]},
    {"s'": [[1.5, 3, 5], [10, 2, 7]]},
)


def test_o15_the_online_network_chooses_and_the_target_network_judges():
    """Online [1, 5, 3] chooses 1, whose target value is 2; the plain maximum would be 10. The first: 3, not 5."""
    target = DQN().target(TWO, np.zeros(2), np.ones(2), "s'")
    np.testing.assert_allclose(target, [3, 2])
    np.testing.assert_allclose(DQN(double=False).target(TWO, np.zeros(2), np.ones(2), "s'"), [5, 10])


def test_the_loss_by_hand():
    """y = 1 + .9 · 3 = 3.7 and 2 (terminated); Q = 2 and 0; errors -1.7 and -2. Squares 2.89 and 4, Huber 1.2 and 1.5;
    weights 1 and .5.
    """
    one = batch([1, 0], [1.0, 2.0], [0.9, 0.0], [1.0, 0.5])
    loss, info = DQN(huber_delta=0.0).loss(TWO, one)
    assert loss == pytest.approx((2.89 + 0.5 * 4) / 2)
    np.testing.assert_allclose(info["priority"], [1.7, 2.0])
    loss, _ = DQN(huber_delta=1.0).loss(TWO, one)
    assert loss == pytest.approx((1.2 + 0.5 * 1.5) / 2)


@pytest.mark.parametrize(("epsilon", "y"), [(1e-3, 2.47906165), (1e-2, 2.53311491)])
def test_o2_rescaled_targets(epsilon, y):
    """r = [1, 2, 3], γ = .9: R = 1 + 1.8 + 2.43 = 5.23, discount .729; the target network says 2."""
    two = nets({"s'": [[0.0, 1.0]]}, {"s'": [[9.0, 2.0]]})
    algorithm = R2D2(rescale_epsilon=epsilon)
    assert algorithm.target(two, np.array([5.23]), np.array([0.729]), "s'")[0] == pytest.approx(y, abs=1e-8)


def test_o11_the_ladder():
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
def test_o11_falling_exponentially(step, epsilon):
    falling = DQN(exploration="exponential", exploration_start=0.95, exploration_end=0.05, exploration_steps=100_000)
    np.testing.assert_allclose(falling.explorer().schedule(step, 0, 2), [epsilon] * 2, rtol=1e-8)


def test_falling_linearly():
    falling = DQN(exploration_start=1.0, exploration_end=0.1, exploration_steps=100)
    assert [falling.explorer().schedule(step, 0, 1)[0] for step in (0, 50, 100, 500)] == pytest.approx(
        [1.0, 0.55, 0.1, 0.1]
    )


def test_r24_every_environment_draws_for_itself():
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


def test_evaluations_explore_only_if_asked_to():
    random = np.random.default_rng(0)
    assert DQN().explorer().for_evaluation(random, 4, CHOICE) is None
    noise = DQN(evaluation_epsilon=0.5).explorer().for_evaluation(random, 4000, CHOICE)
    assert noise is not None
    assert (noise >= 0).mean() == pytest.approx(0.5, abs=0.03)


def test_the_target_network_moves_every_so_many_updates():
    algorithm = DQN(target_period=3)
    assert [algorithm.phase(update) for update in range(1, 8)] == [1, 1, 0, 1, 1, 0, 1]


def test_continuous_actions_are_refused():
    with pytest.raises(UsageError, match=r"r2d2 needs a Discrete action space; Pendulum-v1 has Box\(1,\)"):
        R2D2().check_spaces(CHOICE, Box((1,), "float32", (-1.0,), (1.0,)), "Pendulum-v1")


@pytest.mark.parametrize("options", [{"train_at_episode_end": True}])
def test_what_is_for_single_steps_is_refused_for_sequences(options):
    (name,) = options
    with pytest.raises(UsageError, match=f"{name} is for transitions; recurrent layers learn from sequences"):
        DQN(recurrent="gru", **options)
    assert getattr(DQN(**options), name) == options[name]


def test_an_overlap_that_never_ends_is_refused():
    with pytest.raises(UsageError, match=r"overlap is 80; .* less than burn_in \+ unroll, 80"):
        R2D2(overlap=80)
