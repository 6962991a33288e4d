"""Small spaces, batches and learners on both backends, for tests of losses and updates."""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace

from duetto import learners
from duetto.algorithms import TD3
from duetto.algorithms.base import Algorithm, Batch
from duetto.learners import Learner
from duetto.networks.spaces import Box, Dict, Discrete, MultiDiscrete, Space
from duetto.testing.trials import THREADS


def box(*shape: int, bound: float = np.inf, dtype: str = "float32") -> Box:
    size = int(np.prod(shape))
    return Box(shape, dtype, (-bound,) * size, (bound,) * size)


VECTOR = box(5)
ACTION = box(2, bound=1.0)
PARTS = Dict((("goal", Discrete(3)), ("switches", MultiDiscrete((2, 3))), ("where", box(2, 2))))


def observations(space: Space, size: int, random: np.random.Generator) -> Any:
    """Return random observations (size, ...) as a replay buffer returns them."""
    if isinstance(space, Dict):
        return {name: observations(part, size, random) for name, part in space.parts}
    if isinstance(space, Discrete):
        return random.integers(space.n, size=size)
    if isinstance(space, MultiDiscrete):
        return random.integers(space.nvec, size=(size, len(space.nvec)))
    if space.dtype == "uint8":
        return random.integers(256, size=(size, *space.shape), dtype=np.uint8)
    return random.normal(size=(size, *space.shape)).astype(np.float32)


def batch(
    size: int = 32, seed: int = 0, observation: Space = VECTOR, action: Box = ACTION, weighted: bool = False
) -> Batch:
    """Return a random batch in which a quarter of the steps is terminal."""
    random = np.random.default_rng(seed)
    obs, next_obs = (observations(observation, size, random) for _ in range(2))
    return Batch(
        obs=obs,
        action=random.uniform(-1, 1, (size, action.size)).astype(np.float32),
        reward=random.normal(size=size).astype(np.float32),
        discount=np.where(random.random(size) < 0.25, 0, 0.99).astype(np.float32),
        next_obs=next_obs,
        weight=random.uniform(0.1, 1, size).astype(np.float32) if weighted else np.ones(size, np.float32),
    )


def loss_batch(array: Any, reward: Any, discount: Any, weight: Any = None, action: Any = None) -> Batch:
    """Return a batch of a framework's arrays for losses by hand; observations, and by default actions, are 0."""
    column = array(np.zeros((len(reward), 1)))
    weight = np.ones(len(reward)) if weight is None else weight
    action = column if action is None else array(np.array(action, np.float32))
    return Batch(column, action, array(reward), array(discount), column, array(weight))


def twins(obs: Any, action: Any) -> Any:
    """Return Q1(a) = 10 + 2a and Q2(a) = 12 - a: Q2 is lower if a > 2/3."""
    a = action[:, 0]
    return array_namespace(a).stack([10 + 2 * a, 12 - a])


def small(kind: type[Algorithm] = TD3, **options: Any) -> Algorithm:
    return kind(**({"hidden": (16, 12)} | options))


def build(
    backend: Any,
    algorithm: Algorithm,
    observation: Space = VECTOR,
    action: Space = ACTION,
    seed: int = 0,
    **options: Any,
) -> Learner:
    return learners.build(backend, algorithm, observation, action, seed=seed, threads=THREADS[backend], **options)


def first_moments(learner: Learner, name: str) -> dict[str, np.ndarray]:
    """Return Adam's first moment: after one update, 0.1 times the gradient."""
    return learner.optimizer_state()[name]["first"]


def changed(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    """Return the names of the networks with a changed parameter."""
    return {name for name, net in before.items() if any(not np.array_equal(net[key], after[name][key]) for key in net)}


def assert_same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    """Check for equal names and equal values."""
    assert one.keys() == other.keys()
    for name, values in one.items():
        np.testing.assert_array_equal(values, other[name], err_msg=name)


def aligned(array: np.ndarray) -> np.ndarray:
    """Copy the array to memory that JAX would read without a copy, at a multiple of 64 bytes."""
    memory = np.empty(array.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def perceptron(parameters: dict[str, np.ndarray], x: np.ndarray, member: int | None = None) -> np.ndarray:
    """Compute a multilayer perceptron with ReLU in NumPy: (B, in) to (B, out)."""
    layers = len(parameters) // 2
    for i in range(layers):
        weight, bias = (parameters[f"layers.{i}.{kind}"].astype(np.float64) for kind in ("weight", "bias"))
        if member is not None:
            weight, bias = weight[member], bias[member]
        x = x @ weight.T + bias
        if i < layers - 1:
            x = np.maximum(x, 0)
    return x


def first_q(learner: Learner, obs: Any, action: Any) -> np.ndarray:
    """Return Q1 (B,) of observations (B, ...) and actions (B, A)."""
    inputs = np.concatenate([np.asarray(obs, np.float64), np.asarray(action, np.float64)], axis=1)
    return perceptron(learner.parameters()["critic"], inputs, member=0)[:, 0]
