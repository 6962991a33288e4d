"""The observation key "privileged_state" reaches the critics but not the actor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import duetto
from duetto.algorithms import TD3, FlashSAC
from duetto.algorithms.actor_critic import ActorCritic
from duetto.environments.spaces import from_gymnasium


class Simulator(gymnasium.Env[dict[str, np.ndarray], np.ndarray]):
    """A robot that senses 3 of the 5 numbers of its state."""

    def __init__(self) -> None:
        sensed, whole = (spaces.Box(-1, 1, (size,), np.float32) for size in (3, 5))
        self.observation_space: Any = spaces.Dict(state=sensed, privileged_state=whole)
        self.action_space = spaces.Box(-1, 1, (2,), np.float32)

    def _observed(self) -> dict[str, np.ndarray]:
        whole = self.np_random.uniform(-1, 1, 5).astype(np.float32)
        return {"state": whole[:3], "privileged_state": whole}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._left = 10
        return self._observed(), {}

    def step(self, action):
        self._left -= 1
        return self._observed(), float(action.sum()), False, self._left == 0, {}


@pytest.mark.parametrize("kind", [TD3, FlashSAC])
def test_only_critics_see_privileged_state(kind: type[ActorCritic], tmp_path: Path):
    small: Any = kind(hidden=(8, 8), batch_size=8, learning_starts=20, random_steps=20, replay_capacity=100)
    options: dict[str, Any] = {
        "steps": 40,
        "evaluate_every": 0,
        "backend": "torch",
        "runs_dir": tmp_path,
        "progress": False,
    }
    run: Any = duetto.train(small, Simulator, **options)
    agent = run.agent()
    sensed = np.zeros(3, np.float32)
    actions = [agent.act({"state": sensed, "privileged_state": np.full(5, x, np.float32)}) for x in (0.0, 1.0)]
    assert (actions[0] == actions[1]).all()
    assert (agent.act({"state": sensed + 1, "privileged_state": np.zeros(5, np.float32)}) != actions[0]).any()
    assert observation_keys(small, "actor") == ["state"]
    assert observation_keys(small, "critic") == ["privileged_state", "state"]


def observation_keys(algorithm: ActorCritic, network: str) -> list[str]:
    env = Simulator()
    spec: Any = algorithm.networks(from_gymnasium(env.observation_space), from_gymnasium(env.action_space))[network]
    return [name for name, _ in spec.observation.parts]
