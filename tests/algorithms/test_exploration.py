"""Exploration noise of DDPG and TD3, and slices of the epsilon ladder: SPEC C23 to C25, O8."""

import numpy as np
import pytest
from learning_cases import ACTION

from duetto.algorithms import DDPG, R2D2, TD3


class FixedNormals:
    """A random generator that returns the given numbers in turn."""

    def __init__(self, *numbers):
        self.numbers = iter(numbers)

    def standard_normal(self, shape, dtype):
        return np.full(shape, next(self.numbers), dtype)


def explore(algorithm, steps, *, total=1000, shape=(1, 1), random=None, start=0):
    """Return the noise of each step, and the last state."""
    random, state, seen = random or np.random.default_rng(0), np.zeros(shape, np.float32), []
    for step in range(start, start + steps):
        noise, state = algorithm.explorer().draw(random, state, step, total, ACTION)
        assert noise.dtype == state.dtype == np.float32
        assert noise.shape == state.shape == shape
        seen.append(noise)
    return np.stack(seen), state


@pytest.mark.parametrize("kind", [DDPG, TD3])
def test_gaussian_noise_is_independent_per_env_and_dimension_c23(kind):
    noise, _ = explore(kind(exploration_noise=0.3), 20_000, shape=(2, 2))
    np.testing.assert_allclose(np.cov(noise.reshape(-1, 4).T), 0.09 * np.eye(4), atol=0.003)
    np.testing.assert_allclose(noise.mean(axis=0), 0, atol=0.01)


def test_noise_std_is_drawn_per_episode():
    """The std is uniform between both options, equal in all dimensions, and fixed during an episode."""
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


def test_maximum_std_does_not_replace_ou_noise():
    same = [explore(DDPG(exploration="ou", exploration_noise_max=most), 5)[0] for most in (0.0, 0.5)]
    assert (same[0] == same[1]).all()


def test_final_scale_does_not_scale_ou_state():
    """x = .2, then .2 - .03 + .2 = .37. The noise is x / 2; the process continues from x."""
    half = DDPG(exploration="ou", exploration_noise=0.2, exploration_final_scale=0.5)
    noise, state = explore(half, 2, start=1, total=1, random=FixedNormals(1.0, 1.0))
    np.testing.assert_allclose(noise.ravel(), [0.1, 0.185], rtol=1e-6)
    np.testing.assert_allclose(state, [[0.37]], rtol=1e-6)


# SPEC O8, T = 1000.
@pytest.mark.parametrize(("step", "scale"), [(0, 1.0), (250, 0.75025), (1000, 0.001), (1500, 0.001)])
def test_noise_scale_decays_linearly_o8(step, scale):
    algorithm = DDPG(exploration_noise=1.0, exploration_final_scale=1e-3)
    noise, _ = explore(algorithm, 1, start=step, total=1000, random=FixedNormals(1.0))
    assert noise.item() == pytest.approx(scale)


def test_ou_state_resets_at_episode_end_pitfall_21():
    state, done = np.array([[0.3, 0.4], [0.5, 0.6]], np.float32), np.array([True, False])
    process, kept = ({"exploration": "ou", "exploration_noise_max": 0.5, "ou_reset": reset} for reset in (True, False))
    after = DDPG(**process).explorer().after_episode(state, done)
    assert after.dtype == np.float32
    np.testing.assert_array_equal(after, np.array([[0, 0], [0.5, 0.6]], np.float32))
    np.testing.assert_array_equal(DDPG(**kept).explorer().after_episode(state, done), state)


def test_epsilon_ladder_for_some_environments_is_slice():
    everybody = R2D2().explorer()
    whole = everybody.schedule(0, 0, 8)
    assert len(set(whole)) == 8
    assert np.array_equal(everybody.for_envs(2, 8).schedule(0, 0, 3), whole[2:5])
