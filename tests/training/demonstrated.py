"""Demonstrations of CartPole by a rule that balances the pole, and options to learn from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from duetto import demonstrations
from duetto.demonstrations import Demonstration, Metadata
from duetto.networks.spaces import Box, Discrete, from_json, to_json

LENGTH = 37
CUT: dict[str, Any] = {"environment_options": {"max_episode_steps": LENGTH}}
SEQUENCES: dict[str, Any] = {"recurrent_size": 8, "unroll": 6, "overlap": 3, "burn_in": 3, "batch_size": 8}
CHOICES: dict[str, Any] = {"head_hidden": (16,), "learning_rate": 1e-3, "train_every": 4}
OBSERVATION = from_json(to_json(Box((4,), "float32", (-np.inf,) * 4, (np.inf,) * 4)))


def expert(obs: np.ndarray) -> int:
    """Push toward the side to which the pole falls."""
    return int(obs[2] + 0.3 * obs[3] > 0)


def episodes(count: int = 3, length: int = LENGTH) -> list[Demonstration]:
    env = gymnasium.make("CartPole-v1", max_episode_steps=length)
    made = []
    for seed in range(count):
        seen, actions = [env.reset(seed=seed)[0]], []
        over = False
        while not over:
            actions.append(expert(seen[-1]))
            obs, _, terminated, truncated, _ = env.step(actions[-1])
            over = terminated or truncated
            seen.append(obs)
        ends = (bool(terminated), bool(truncated))
        rewards = np.ones(len(actions), np.float32)
        made.append(Demonstration(np.array(seen, np.float32), np.array(actions, np.int64), rewards, *ends))
    env.close()
    return made


def recorded(folder: Path, demos: list[Demonstration] | None = None, **changes: Any) -> str:
    """Save demonstrations; return the folder of the dataset."""
    about: dict[str, Any] = {"environment": "CartPole-v1", "options": CUT["environment_options"], "expert": "a rule"}
    about |= {"observation_space": OBSERVATION, "action_space": Discrete(2)}
    return str(demonstrations.save(folder, Metadata(**about | changes), episodes() if demos is None else demos))
