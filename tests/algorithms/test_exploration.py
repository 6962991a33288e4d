"""Exploration noise as DDPG and TD3 make it: SPEC C23 to C25, O8."""

import numpy as np
import pytest
from learning_cases import ACTION

from duetto.algorithms import DDPG, R2D2, TD3


class Forced:
    """A generator that gives the numbers it was told."""

    def __init__(self, *numbers):
        self.numbers = iter(numbers)

    def standard_normal(self, shape, dtype):
        return np.full(shape, next(self.numbers), dtype)


def explore(algorithm, steps, *, total=1000, shape=(1, 1), random=None, start=0):
    """Noise at each of some steps, and the last state."""
    random, state, seen = random or np.random.default_rng(0), np.zeros(shape, np.float32), []
    for step in range(start, start + steps):
        noise, state = algorithm.explorer().draw(random, state, step, total, ACTION)
        assert noise.dtype == state.dtype == np.float32
        assert noise.shape == state.shape == shape
        seen.append(noise)
    return np.stack(seen), state


@pytest.mark.parametrize("kind", [DDPG, TD3])
def test_c23_gaussian_noise_is_independent_for_each_environment_and_dimension(kind):
    noise, _ = explore(kind(exploration_noise=0.3), 20_000, shape=(2, 2))
    np.testing.assert_allclose(np.cov(noise.reshape(-1, 4).T), 0.09 * np.eye(4), atol=0.003)
    np.testing.assert_allclose(noise.mean(axis=0), 0, atol=0.01)


def test_each_episode_has_its_own_std():
    """Uniform between the two, and the same in all dimensions until the episode of its environment ends."""
    explorer = TD3(exploration_noise=0.1, exploration_noise_max=0.5).explorer()
    random, state = np.random.default_rng(0), np.zeros((1000, 2), np.float32)
    noise, first = explorer.draw(random, state, 0, 1000, ACTION)
    assert (first[:, 0] == first[:, 1]).all()
    assert (first[:, 0].min(), first[:, 0].max()) == pytest.approx((0.1, 0.5), abs=0.01)
    assert np.std(noise / first) == pytest.approx(1, abs=0.05)
    ended = np.arange(1000) < 500
    _, second = explorer.draw(random, explorer.after_episode(first, ended), 1, 1000, ACTION)
    assert (second[500:] == first[500:]).all()
    assert (second[:500] != first[:500]).all()


def test_o8_ornstein_uhlenbeck():
    algorithm = DDPG(exploration="ou", exploration_noise=0.2)
    noise, state = explore(algorithm, 5, random=Forced(1.0, -1.0, 0.5, 0.0, 2.0))
    np.testing.assert_allclose(noise.ravel(), [0.2, -0.03, 0.0745, 0.063325, 0.45382625], rtol=1e-5)
    assert state == noise[-1]


def test_the_scale_is_of_the_noise_and_not_of_the_process():
    """x = .2, then .2 - .03 + .2 = .37: what is added to the action is half of it, what continues is the whole."""
    half = DDPG(exploration="ou", exploration_noise=0.2, exploration_final_scale=0.5)
    noise, state = explore(half, 2, start=1, total=1, random=Forced(1.0, 1.0))
    np.testing.assert_allclose(noise.ravel(), [0.1, 0.185], rtol=1e-6)
    np.testing.assert_allclose(state, [[0.37]], rtol=1e-6)


# SPEC O8, T = 1000.
@pytest.mark.parametrize(("step", "scale"), [(0, 1.0), (250, 0.75025), (1000, 0.001), (1500, 0.001)])
def test_o8_scale(step, scale):
    algorithm = DDPG(exploration_noise=1.0, exploration_final_scale=1e-3)
    noise, _ = explore(algorithm, 1, start=step, total=1000, random=Forced(1.0))
    assert noise.item() == pytest.approx(scale)


def test_none_at_all():
    noise, _ = explore(DDPG(exploration="none"), 3)
    assert not noise.any()


def test_pitfall_21_the_process_starts_again_where_an_episode_is_over():
    state, done = np.array([[0.3, 0.4], [0.5, 0.6]], np.float32), np.array([True, False])
    after = DDPG().explorer().after_episode(state, done)
    assert after.dtype == np.float32
    np.testing.assert_array_equal(after, np.array([[0, 0], [0.5, 0.6]], np.float32))
    np.testing.assert_array_equal(DDPG(ou_reset=False).explorer().after_episode(state, done), state)


def test_some_environments_have_their_own_part_of_the_ladder():
    everybody = R2D2().explorer()
    whole = everybody.schedule(0, 0, 8)
    assert len(set(whole)) == 8
    assert np.array_equal(everybody.for_envs(2, 8).schedule(0, 0, 3), whole[2:5])
