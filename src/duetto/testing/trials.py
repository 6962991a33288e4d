"""Short runs of an algorithm with quick options: on each kind of space, and with other values of each option."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np

from duetto import demonstrations, environments
from duetto.algorithms import Algorithm
from duetto.demonstrations import Metadata
from duetto.environments import VecEnv
from duetto.errors import UsageError
from duetto.learners import Backend
from duetto.networks.spaces import Box, Dict, Discrete, MultiDiscrete, Space
from duetto.networks.specs import CustomNetwork
from duetto.storage.config import Config, RunOptions
from duetto.testing.random_env import RandomEnv
from duetto.training.trainer import Trainer

ENVIRONMENT = "the random environment"
THREADS: dict[Backend, int] = {"torch": 1, "jax": 0}  # 0: JAX keeps its number of threads


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
        """Return the first `count` batches that the learner gets in a run."""
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
    """Create an algorithm with `options`, and with quick values of its other options.

    Options that the algorithm does not have are ignored. `folder` contains demonstrations, if the algorithm learns from
    them.
    """
    known = SMALL | kind.small | options
    if folder is not None:
        known["demonstrations"] = str(folder)
    return kind(**{name: value for name, value in known.items() if name in kind.options()})


def supported_spaces(algorithm: Algorithm) -> list[tuple[str, Space, Space]]:
    """Return the pairs of spaces to try that the algorithm supports, as (name, observation space, action space)."""
    pairs = []
    for o, observation in OBSERVATIONS.items():
        for a, action in ACTIONS.items():
            with suppress(UsageError):
                algorithm.check_spaces(observation, action, ENVIRONMENT)
                if o == "vector" or a != "joint":
                    pairs.append((f"{o}-{a}", observation, action))
    return pairs


class _RandomExpert:
    """An expert that takes random actions."""

    def __init__(self, envs: VecEnv) -> None:
        self._envs, self._random = envs, np.random.default_rng(0)

    def __call__(self, obs: Any, starts: np.ndarray) -> np.ndarray:
        return self._envs.sample_actions(self._random)

    def rewarded(self, reward: np.ndarray, env: np.ndarray) -> None:
        return


def write_demonstrations(folder: Path, observation: Space, action: Space, episodes: int = 6) -> Path:
    """Write a dataset of random episodes in the random environment, and return its folder."""
    with closing(environments.make(lambda: RandomEnv(observation, action))) as envs:
        games = list(demonstrations.record(_RandomExpert(envs), envs, episodes, seed=0))
    about = Metadata(ENVIRONMENT, {}, "random", observation, action)
    demos = [demonstration for game in games for demonstration in game.demonstrations]
    return demonstrations.save(folder / "demonstrations", about, demos)


# ---------------------------------------------------------------------------------------------------- other values
Alternatives = Mapping[str, tuple[Any, dict[str, Any]] | None]


def alternative(algorithm: Algorithm, name: str, values: Alternatives) -> tuple[Any, dict[str, Any]] | None:
    """Return another value of an option, and options without which it has no effect; None to skip the option."""
    hint = get_type_hints(type(algorithm))[name]
    entry = values.get(name, (getattr(algorithm, name), {}))
    if entry is None or hint == CustomNetwork | None:
        return None
    value, needed = entry
    if value == getattr(algorithm, name):
        value = _other(value, hint)
    return value, {key: other for key, other in needed.items() if key in algorithm.options()}


def _other(value: Any, hint: Any) -> Any:
    if get_origin(hint) is Literal:
        return next(choice for choice in get_args(hint) if choice != value)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return 0.5 * value if value else 0.1
    if isinstance(value, tuple):
        return tuple(0.5 * part if isinstance(part, float) else part + 1 for part in value) or (8,)
    raise AssertionError(f"Add another value than {value!r} to `alternatives`.")
