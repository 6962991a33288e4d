"""An environment whose observations depend on all earlier steps."""

from __future__ import annotations

from typing import Any

import cloudpickle
import gymnasium
import numpy as np
from simulated import Simulated
from small_runs import small

from duetto.cluster.actor import ActorRole, pack
from duetto.cluster.actor_pool import ActorPool
from duetto.cluster.remote_engine import RemoteEngine, shares


class HistoryEnv(gymnasium.Env):
    """Its observation is a hash of all earlier actions and random numbers."""

    observation_space = gymnasium.spaces.Box(-1e9, 1e9, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(4)

    def __init__(self) -> None:
        self.mix, self.steps, self.length = 1, 0, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        if seed is not None:
            self.mix, self.steps = 1, 0
        self.length = 0
        return self._obs(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.mix = (self.mix * 31 + 7 * int(action) + int(self.np_random.integers(1000))) % 2**20
        self.steps, self.length = self.steps + 1, self.length + 1
        return self._obs(), float(self.mix % 7), self.mix % 11 == 0, self.length >= 9, {"lives": 1 + self.mix % 3}

    def _obs(self) -> np.ndarray:
        return np.array([self.mix, self.steps, self.length], np.float32)


def start_on_actors(
    environment: Any, transport: Simulated, num_envs: int, actors: int, **options: Any
) -> tuple[RemoteEngine, list[str]]:
    """Start environments on simulated actors; return the engine and its list of notices."""
    notices: list[str] = []
    role = ActorRole(pack(environment, options), small("dqn"), "torch", "float32", 1, num_envs)
    pool = ActorPool(transport, cloudpickle.dumps(role), shares(num_envs, actors), 5.0, notices)
    return RemoteEngine(pool), notices
