"""The buffer on the accelerator has the same items as the buffer on the host, index by index."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from duetto import buffers
from duetto.algorithms import SAC
from duetto.buffers import Experience
from duetto.buffers.device_replay import DeviceReplay
from duetto.errors import UsageError
from duetto.networks.spaces import Box, Discrete

ENVS, OBSERVATION = 3, Box((2,), "float32", (-9.0,), (9.0,))
CHOICE = Discrete(4)


def random_vector_steps(steps: int, action: Box | Discrete) -> list[Experience]:
    """Return vector steps of three environments whose episodes terminate and are truncated at different times."""
    random, found = np.random.default_rng(0), []
    obs = random.standard_normal((ENVS, 2)).astype(np.float32)
    for _ in range(steps):
        next_obs = random.standard_normal((ENVS, 2)).astype(np.float32)
        terminated, truncated = random.random(ENVS) < 0.2, random.random(ENVS) < 0.2
        chosen = random.integers(4, size=ENVS)
        if isinstance(action, Box):
            chosen = random.uniform(-1, 1, (ENVS, 2)).astype(np.float32)
        reward = random.standard_normal(ENVS).astype(np.float32)
        found.append(Experience(np.arange(ENVS), obs, chosen, reward, next_obs, terminated, truncated))
        first = random.standard_normal((ENVS, 2)).astype(np.float32)
        obs = np.where((terminated | truncated)[:, None], first, next_obs)
    return found


@pytest.mark.parametrize(("n_step", "action"), [(1, CHOICE), (3, OBSERVATION)])
def test_device_replay_items_equal_the_host_buffer(n_step: int, action: Box | Discrete):
    algorithm = SAC(replay_capacity=7 * ENVS - 1, n_step=n_step, batch_size=5)
    host = buffers.build(algorithm.memory(), OBSERVATION, action, ENVS, np.random.default_rng(0))
    device = DeviceReplay(algorithm.memory(), OBSERVATION, action, ENVS)
    assert isinstance(host, buffers.Replay)
    assert device.rows == host.rows == 7
    arrays = device.allocate()
    add, batch = jax.jit(device.add), jax.jit(device.batch)
    for number, step in enumerate(random_vector_steps(19, action)):
        host.add(step)
        arrays = add(arrays, number, {name: jnp.asarray(getattr(step, name)) for name in arrays})
        if number not in (0, 3, 6, 18):
            continue
        items = np.arange(len(host))
        wanted = host.resolve(items)
        index = device.draw(number + 1, len(items), SimpleNamespace(integers=lambda high, size: jnp.arange(size)))
        np.testing.assert_array_equal(index, wanted.index)
        found = batch(arrays, number + 1, index)
        for name in ("obs", "action", "next_obs", "weight"):
            np.testing.assert_array_equal(getattr(found, name), getattr(wanted.batch, name), err_msg=name)
        for name in ("reward", "discount"):
            np.testing.assert_allclose(getattr(found, name), getattr(wanted.batch, name), rtol=1e-6, atol=1e-7)


def test_device_replay_larger_than_memory_is_refused():
    device = DeviceReplay(SAC(replay_capacity=10**13).memory(), OBSERVATION, CHOICE, ENVS)
    with pytest.raises(UsageError, match=r"replay_capacity 10000000000000 needs .* GiB .* Lower replay_capacity"):
        device.allocate()
