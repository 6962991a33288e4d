"""PyTorch tensors that require a gradient are accepted from environments and users."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.vector import VectorEnv

from duetto import environments
from duetto.environments import make

torch = pytest.importorskip("torch")


BOX = Box(-9, 9, (2,), np.float32)


def tensor(*values: float) -> Any:
    return torch.tensor(values, requires_grad=True)


class Differentiable(gymnasium.Env):
    """A simulator through which gradients flow."""

    observation_space = Dict({"a": BOX, "b": Box(-9, 9, (2,), np.float16)})
    action_space: Any = Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return {"a": tensor(0.0, 1.0), "b": tensor(0.0, 1.0)}, {}

    def step(self, action: Any) -> Any:
        self.time += 1
        obs = tensor(float(self.time), 1.0)
        return {"a": obs, "b": obs}, tensor(0.5)[0], self.time == 3, False, {}


class BatchedDifferentiable(VectorEnv):
    num_envs, metadata = 2, {"autoreset_mode": "SAME_STEP"}
    single_observation_space, single_action_space = BOX, Discrete(2)

    def reset(self, **_: Any) -> Any:
        return torch.ones((2, 2), requires_grad=True), {}

    def step(self, actions: Any) -> Any:
        obs, done = torch.full((2, 2), 2.0, requires_grad=True), torch.ones(2, dtype=torch.bool)
        return obs, tensor(0.5, 0.5), done, ~done, {"final_obs": 2 * obs}


def test_tensors_that_require_gradients_are_detached() -> None:
    for stepper, action in (
        (make(Differentiable()), torch.zeros((1, 2), requires_grad=True)),
        (make(BatchedDifferentiable()), np.zeros(2, int)),
    ):
        stepper.reset(0)
        row, _ = stepper.step(action)
        assert (row.reward == 0.5).all()
        assert all(isinstance(part, np.ndarray) for _, part in environments.obs_tree.parts(row.next_obs))
    assert row.next_obs.tolist() == [[4, 4], [4, 4]]
