"""PyTorch tensors that require a gradient are accepted from environments and users."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.vector import VectorEnv

from duetto import environments
from duetto.environments import VecEnv, check, make

torch = pytest.importorskip("torch")


def tensor(*values: float) -> Any:
    return torch.tensor(values, requires_grad=True)


class Differentiable(gymnasium.Env):
    """A simulator through which gradients flow."""

    observation_space = Box(-9, 9, (2,), np.float32)
    action_space: Any = Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return tensor(0.0, 1.0), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        return tensor(float(self.time), 1.0), tensor(0.5)[0], self.time == 3, False, {}


class Nested(Differentiable):
    observation_space = Dict({"a": Box(-9, 9, (2,), np.float32), "b": Box(-9, 9, (2,), np.float16)})

    def reset(self, **arguments: Any) -> Any:
        obs, info = super().reset(**arguments)
        return {"a": obs, "b": obs}, info

    def step(self, action: Any) -> Any:
        obs, *rest = super().step(action)
        return {"a": obs, "b": obs}, *rest


class Batched(VectorEnv):
    num_envs, metadata = 2, {"autoreset_mode": "SAME_STEP"}
    single_observation_space, single_action_space = Differentiable.observation_space, Discrete(2)

    def reset(self, **_: Any) -> Any:
        return torch.ones((2, 2), requires_grad=True), {}

    def step(self, actions: Any) -> Any:
        obs, done = torch.full((2, 2), 2.0, requires_grad=True), torch.ones(2, dtype=torch.bool)
        return obs, tensor(0.5, 0.5), done, ~done, {"final_obs": 2 * obs}


def check_steps(stepper: VecEnv, action: Any, rewards: Any) -> None:
    stepper.reset(0)
    row, _ = stepper.step(action)
    stepper.close()
    assert row.reward.tolist() == rewards
    assert all(isinstance(part, np.ndarray) for _, part in environments.obs_tree.parts(row.next_obs))


def test_tensors_with_a_gradient_are_detached_where_they_enter() -> None:
    action = torch.zeros((1, 2), requires_grad=True)
    check_steps(make(Differentiable()), action, [0.5])
    check_steps(make(Nested()), action, [0.5])
    check_steps(make(Batched()), np.zeros(2, int), [0.5, 0.5])
    made = make(Batched())
    made.reset(0)
    assert made.step(np.zeros(2, int))[0].next_obs.tolist() == [[4, 4], [4, 4]]
    assert not [one for one in check.check(Differentiable, steps=50) if one.level == "broken"]
