"""Formulas that the compiled loop shares with the host's give the same on JAX's arrays as on NumPy's."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from duetto.algorithms import DDPG, DQN, PPO
from duetto.functional.returns import explained_variance, generalized_advantages, n_step_return
from duetto.functional.running_stats import Moments, initial_moments, normalize, update_moments
from duetto.learners.jax_random import KeyGenerator, purpose_key
from duetto.networks.spaces import Box, Discrete
from duetto.training import device_loop

RANDOM = np.random.default_rng(0)
CHOICE, NUMBERS = Discrete(3), Box((2,), "float32", (-1.0,), (1.0,))


def normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("steps", [1, 2, 7, 16])
def test_advantages(steps: int):
    reward, value, following = normal(steps, 3), normal(steps, 3), normal(steps, 3)
    ends = RANDOM.random((2, steps, 3)) < 0.2
    wanted = generalized_advantages(reward, value, following, *ends, 0.99, 0.95)
    found = jax.jit(generalized_advantages, static_argnums=(5, 6))(reward, value, following, *ends, 0.99, 0.95)
    assert wanted.dtype == np.float64
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_n_step_returns():
    reward, ends, available = normal(40, 3), RANDOM.random((2, 40, 3)) < 0.3, RANDOM.integers(1, 4, 40)
    wanted = n_step_return(reward, *ends, available, 0.9)
    found = jax.jit(n_step_return, static_argnums=4)(reward, *ends, available, 0.9)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_running_statistics():
    host, device = initial_moments((2,), 0.1), jax.tree.map(jnp.float32, initial_moments((2,), 0.1))
    for size in (5, 1, 64):
        batch = 3.0 + 2.0 * normal(size, 2)
        host, device = update_moments(host, batch), jax.jit(update_moments)(device, batch)
    for one, other in zip(device, host, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
    x = normal(4, 2)
    np.testing.assert_allclose(normalize(jnp.asarray(x), Moments(*device)), normalize(x, host), rtol=1e-4, atol=1e-5)


def test_explained_variance():
    value, returns = normal(50), normal(50)
    wanted = explained_variance(value, returns)
    assert float(device_loop.explained_variance(value, returns)) == pytest.approx(wanted, rel=1e-5)
    assert float(device_loop.explained_variance(value, np.ones(50, np.float32))) == 0.0


def test_exploration_has_the_same_distribution():
    """Noise of both generators: means and deviations of 20,000 draws."""
    for algorithm, action in ((DDPG(exploration_noise=0.3), NUMBERS), (PPO(), CHOICE), (PPO(), NUMBERS)):
        explorer, state = algorithm.explorer(), np.zeros((20_000, action.size), np.float32)
        host, _ = explorer.draw(np.random.default_rng(0), state, 0, 10, action)
        schedule = jnp.asarray(explorer.schedule(0, 10, len(state)))
        device, _ = explorer.noise(KeyGenerator(jax.random.PRNGKey(0)), jnp.asarray(state), schedule, action)
        assert device.shape == host.shape
        np.testing.assert_allclose(np.mean(device, 0), host.mean(0), atol=0.05)
        np.testing.assert_allclose(np.std(device, 0), host.std(0), atol=0.05)


def test_epsilon_greedy_draws_with_its_probability():
    explorer, state = DQN(exploration_start=0.4).explorer(), jnp.zeros((30_000, 3))
    schedule = jnp.asarray(explorer.schedule(0, 10, len(state)))
    noise, _ = explorer.noise(KeyGenerator(jax.random.PRNGKey(1)), state, schedule, CHOICE)
    counts = np.bincount(np.asarray(noise)[:, 0] + 1) / len(noise)
    np.testing.assert_allclose(counts, [0.6, 0.4 / 3, 0.4 / 3, 0.4 / 3], atol=0.02)


@pytest.mark.parametrize("count", [1, 2, 1000, 70_000])
def test_permutations(count: int):
    first, second = (KeyGenerator(purpose_key(seed, "rows")).permutation(count) for seed in (0, 1))
    assert sorted(np.asarray(first).tolist()) == list(range(count))
    assert count < 3 or (np.asarray(first) != np.asarray(second)).any()


def test_each_row_comes_to_each_place():
    """10,000 permutations of four rows: each place has each row a quarter of the time."""
    keys = jax.random.split(jax.random.PRNGKey(0), 10_000)
    drawn = np.asarray(jax.vmap(lambda key: KeyGenerator(key).permutation(4))(keys))
    counts = np.stack([np.bincount(drawn[:, place], minlength=4) for place in range(4)]) / len(drawn)
    np.testing.assert_allclose(counts, 0.25, atol=0.02)


def test_draws_of_one_generator_differ_and_repeat():
    generator, again = (KeyGenerator(purpose_key(0, "anything")) for _ in range(2))
    one, two = generator.random(5), generator.random(5)
    assert (one != two).all()
    np.testing.assert_array_equal(one, again.random(5))
    assert set(np.asarray(generator.integers(2, 4, 100)).tolist()) == {2, 3}
