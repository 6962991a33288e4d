"""Functions that the compiled training loop shares with the host give the same results in JAX as in NumPy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from duetto.algorithms import DDPG, DQN, PPO
from duetto.functional.returns import generalized_advantages
from duetto.learners.jax_random import KeyGenerator, purpose_key
from duetto.networks.spaces import Box, Discrete

RANDOM = np.random.default_rng(0)
CHOICE, NUMBERS = Discrete(3), Box((2,), "float32", (-1.0,), (1.0,))


def normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def test_jax_advantages_match_numpy():
    steps = 7
    reward, value, following = normal(steps, 3), normal(steps, 3), normal(steps, 3)
    ends = RANDOM.random((2, steps, 3)) < 0.2
    wanted = generalized_advantages(reward, value, following, *ends, 0.99, 0.95)
    found = jax.jit(generalized_advantages, static_argnums=(5, 6))(reward, value, following, *ends, 0.99, 0.95)
    assert wanted.dtype == np.float64
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_jax_exploration_noise_has_numpy_distribution():
    """Compares means and standard deviations of 20,000 draws."""
    for algorithm, action in ((DDPG(exploration_noise=0.3), NUMBERS), (PPO(), CHOICE), (PPO(), NUMBERS)):
        explorer, state = algorithm.explorer(), np.zeros((20_000, action.size), np.float32)
        host, _ = explorer.draw(np.random.default_rng(0), state, 0, 10, action)
        schedule = jnp.asarray(explorer.schedule(0, 10, len(state)))
        device, _ = explorer.noise(KeyGenerator(jax.random.PRNGKey(0)), jnp.asarray(state), schedule, action)
        assert device.shape == host.shape
        np.testing.assert_allclose(np.mean(device, 0), host.mean(0), atol=0.05)
        np.testing.assert_allclose(np.std(device, 0), host.std(0), atol=0.05)


def test_jax_epsilon_greedy_frequencies_match_epsilon():
    explorer, state = DQN(exploration_start=0.4).explorer(), jnp.zeros((30_000, 3))
    schedule = jnp.asarray(explorer.schedule(0, 10, len(state)))
    noise, _ = explorer.noise(KeyGenerator(jax.random.PRNGKey(1)), state, schedule, CHOICE)
    counts = np.bincount(np.asarray(noise)[:, 0] + 1) / len(noise)
    np.testing.assert_allclose(counts, [0.6, 0.4 / 3, 0.4 / 3, 0.4 / 3], atol=0.02)


@pytest.mark.parametrize("count", [1, 1000, 70_000])
def test_jax_permutation_contains_every_row_once(count: int):
    first, second = (KeyGenerator(purpose_key(seed, "rows")).permutation(count) for seed in (0, 1))
    assert sorted(np.asarray(first).tolist()) == list(range(count))
    assert count < 3 or (np.asarray(first) != np.asarray(second)).any()


def test_jax_permutations_are_uniform():
    """In 10,000 permutations of four rows, each position has each row a quarter of the time."""
    keys = jax.random.split(jax.random.PRNGKey(0), 10_000)
    drawn = np.asarray(jax.vmap(lambda key: KeyGenerator(key).permutation(4))(keys))
    counts = np.stack([np.bincount(drawn[:, place], minlength=4) for place in range(4)]) / len(drawn)
    np.testing.assert_allclose(counts, 0.25, atol=0.02)
