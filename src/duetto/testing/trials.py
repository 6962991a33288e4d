"""Trials of an algorithm: small options, every kind of space that it takes, and batches of a real run."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from duetto import demonstrations
from duetto.algorithms import Algorithm
from duetto.demonstrations import Demonstration, Description
from duetto.environments.chance import Chance
from duetto.errors import UsageError
from duetto.learners import Backend
from duetto.networks.spaces import Box, Dict, Discrete, MultiDiscrete, Space
from duetto.storage.config import Config, RunOptions
from duetto.training.session import Session

ENVIRONMENT = "an environment of chance"
ONE: dict[Backend, int] = {"torch": 1, "jax": 0}  # threads; JAX keeps those that it begins with, whoever comes next


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

# Options with which a trial is quick, of those that an algorithm has; `Algorithm.small` adds its own.
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
    """An algorithm with small options, and spaces that it takes."""

    algorithm: Algorithm
    observation: Space
    action: Space
    masked: bool = False

    def environment(self) -> Chance:
        """Make a new environment of these spaces."""
        return Chance(self.observation, self.action, masked=self.masked)

    def session(self, backend: Backend, folder: Path, **options: Any) -> Session:
        """Make the session of a run on it, not started."""
        defaults: dict[str, Any] = {"steps": 48, "num_envs": 2, "evaluate_every": 0, "checkpoint_every": 0}
        defaults |= {"device": "cpu", "threads": ONE[backend]}
        run = RunOptions(backend=backend, **(defaults | options))
        return Session(Config(self.algorithm, ENVIRONMENT, run), folder, self.environment)

    def batches(self, count: int) -> list[Any]:
        """The first `count` batches of a run on it, as its learner gets them."""
        seen: list[Any] = []
        with temporary() as folder, closed(self.session("torch", folder, steps=10_000)) as session:
            update = session.learner.update

            def noted(batch: Any, progress: float = 0.0) -> Any:
                seen.append(batch)
                if len(seen) == count:
                    session.stop()
                return update(batch, progress)

            session.learner.update = noted  # type: ignore[method-assign]
            session.run()
        return seen[:count]


@contextmanager
def temporary() -> Iterator[Path]:
    """Yield a folder that is deleted afterwards."""
    with tempfile.TemporaryDirectory(prefix="duetto-trial-") as folder:
        yield Path(folder)


@contextmanager
def closed(session: Session) -> Iterator[Session]:
    """Yield the session, and close it afterwards."""
    try:
        yield session
    finally:
        session.close()


def small(kind: type[Algorithm], folder: Path | None = None, **options: Any) -> Algorithm:
    """Make the algorithm with options that make it quick. `folder` holds demonstrations for one that needs them."""
    known = {name: value for name, value in SMALL.items() if name in kind.options()}
    known |= kind.small
    if "demonstrations" in kind.options() and folder is not None:
        known["demonstrations"] = str(folder)
    return kind(**(known | options))


def supported(algorithm: Algorithm) -> list[tuple[str, Space, Space]]:
    """All pairs of small spaces that the algorithm takes: name, observation space, action space."""
    found = []
    for o, observation in OBSERVATIONS.items():
        for a, action in ACTIONS.items():
            if (o == "vector" or a != "joint") and _takes(algorithm, observation, action):
                found.append((f"{o}-{a}", observation, action))
    return found


def _takes(algorithm: Algorithm, observation: Space, action: Space) -> bool:
    try:
        algorithm.check_spaces(observation, action, ENVIRONMENT)
    except UsageError:
        return False
    return True


def demonstrated(folder: Path, observation: Space, action: Space, episodes: int = 6) -> Path:
    """Write a dataset of random episodes in the environment of chance; returns its folder."""
    random, env = np.random.default_rng(0), Chance(observation, action)
    made = []
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
        made.append(Demonstration(obs, np.array(actions, kind), np.array(rewards, np.float32), False, True))
    about = Description(
        environment=ENVIRONMENT, options={}, expert="chance", observation_space=observation, action_space=action
    )
    return demonstrations.save(folder / "demonstrations", about, made)
