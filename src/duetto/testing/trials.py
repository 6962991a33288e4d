"""Trials of an algorithm: quick options, every kind of space that it supports, and batches of a real run."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from duetto import demonstrations
from duetto.algorithms import Algorithm
from duetto.demonstrations import Demonstration, Metadata
from duetto.errors import UsageError
from duetto.learners import Backend
from duetto.networks.spaces import Box, Dict, Discrete, MultiDiscrete, Space
from duetto.storage.config import Config, RunOptions
from duetto.testing.random_env import RandomEnv
from duetto.training.trainer import Trainer

ENVIRONMENT = "the random environment"
THREADS: dict[Backend, int] = {"torch": 1, "jax": 0}  # for JAX the number at its start


def _box(*shape: int, bound: float = float("inf"), dtype: str = "float32") -> Box:
    return Box(shape, dtype, (-bound,), (bound,))


OBSERVATIONS: dict[str, Space] = {
    "vector": _box(5),
    "parts": Dict((("goal", Discrete(3)), ("switches", MultiDiscrete((2, 3))), ("where", _box(2, 2)))),
    "image": Box((3, 7, 7), "uint8", (0.0,), (255.0,)),
}
ACTIONS: dict[str, Space] = {
    "numbers": _box(2, bound=1.0),
    "choice": Discrete(3),
    "choices": MultiDiscrete((2, 3)),
    "joint": Dict((("aim", _box(2, bound=1.0)), ("buttons", MultiDiscrete((2, 3))), ("move", Discrete(3)))),
}

# Options that make a trial quick; `Algorithm.small` overrides them.
SMALL: dict[str, Any] = {
    "hidden": (16, 16),
    "head_hidden": (8,),
    "image_features": 8,
    "recurrent_size": 4,
    "batch_size": 8,
    "replay_capacity": 60,
    "random_steps": 10,
    "learning_starts": 16,
    "target_period": 2,
    "rollout_steps": 8,
    "minibatches": 2,
    "epochs": 2,
    "burn_in": 2,
    "unroll": 4,
    "overlap": 2,
    "pretraining_updates": 2,
    "exploration_steps": 20,
    "learning_rate": 3e-3,
}


@dataclass(frozen=True)
class Trial:
    """An algorithm with quick options, and spaces that it supports."""

    algorithm: Algorithm
    observation: Space
    action: Space
    masked: bool = False

    def __str__(self) -> str:
        return f"{self.algorithm.name()} on {self.observation} and {self.action}"

    def environment(self) -> RandomEnv:
        """Make a random environment with these spaces."""
        return RandomEnv(self.observation, self.action, masked=self.masked)

    def trainer(self, backend: Backend, folder: Path, **options: Any) -> Trainer:
        """Make the trainer of a run, without starting it."""
        defaults: dict[str, Any] = {"steps": 48, "num_envs": 2, "evaluate_every": 0, "checkpoint_every": 0}
        defaults |= {"device": "cpu", "threads": THREADS[backend]}
        run = RunOptions(backend=backend, **(defaults | options))
        return Trainer(Config(self.algorithm, ENVIRONMENT, run), folder, self.environment)

    def batches(self, count: int) -> list[Any]:
        """Return the first `count` batches of a run's learner."""
        batches: list[Any] = []
        with TemporaryDirectory() as folder, closing(self.trainer("torch", Path(folder), steps=10_000)) as trainer:
            update_each = trainer.learner.update_each

            def record(due: Sequence[Any], progress: Sequence[float]) -> Any:
                batches.extend(due)
                if len(batches) >= count:
                    trainer.stop()
                return update_each(due, progress)

            trainer.learner.update_each = record  # type: ignore[method-assign]
            trainer.run()
        return batches[:count]


def quick_algorithm(kind: type[Algorithm], folder: Path | None = None, **options: Any) -> Algorithm:
    """Make the algorithm with quick options. `folder` holds demonstrations, if it needs them."""
    known = {name: value for name, value in SMALL.items() if name in kind.options()}
    known |= kind.small
    if "demonstrations" in kind.options() and folder is not None:
        known["demonstrations"] = str(folder)
    return kind(**(known | options))


def supported_spaces(algorithm: Algorithm) -> list[tuple[str, Space, Space]]:
    """Return all pairs of small spaces that the algorithm supports: name, observation space, action space."""
    pairs = []
    for o, observation in OBSERVATIONS.items():
        for a, action in ACTIONS.items():
            if (o == "vector" or a != "joint") and _supports(algorithm, observation, action):
                pairs.append((f"{o}-{a}", observation, action))
    return pairs


def _supports(algorithm: Algorithm, observation: Space, action: Space) -> bool:
    try:
        algorithm.check_spaces(observation, action, ENVIRONMENT)
    except UsageError:
        return False
    return True


def write_demonstrations(folder: Path, observation: Space, action: Space, episodes: int = 6) -> Path:
    """Write a dataset of random episodes in the random environment, and return its folder."""
    random, env = np.random.default_rng(0), RandomEnv(observation, action)
    demos = []
    for seed in range(episodes):
        seen, actions, rewards = [env.reset(seed=seed)[0]], [], []
        for _ in range(10):
            chosen = (
                random.integers(action.size) if isinstance(action, Discrete) else random.uniform(-1, 1, action.size)
            )
            seen.append(env.step(chosen)[0])
            actions.append(chosen)
            rewards.append(random.normal())
        obs = {k: np.array([o[k] for o in seen]) for k in seen[0]} if isinstance(seen[0], dict) else np.array(seen)
        kind = np.int64 if isinstance(action, Discrete) else np.float32
        demos.append(Demonstration(obs, np.array(actions, kind), np.array(rewards, np.float32), False, True))
    about = Metadata(
        environment=ENVIRONMENT, options={}, expert="random", observation_space=observation, action_space=action
    )
    return demonstrations.save(folder / "demonstrations", about, demos)
