"""Short runs of an algorithm with quick options: on each kind of space, and with other values of each option."""

from __future__ import annotations

from collections.abc import Sequence
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
PER: dict[str, Any] = {"prioritized": True}
LSTM: dict[str, Any] = {"recurrent": "lstm"}
OU: dict[str, Any] = {"exploration": "ou"}
LINEAR: dict[str, Any] = {"learning_rate_decay": "linear"}

# For an option, the value to try (by default, `_other` of its default), and other options that must be set
# for the option to have an effect. None: it has no effect in a short random run.
ALTERNATIVES: dict[str, tuple[Any, dict[str, Any]] | None] = {
    "replay_capacity": (30, {}),
    "priority_exponent": (1.0, PER),
    "priority_epsilon": (0.5, PER),
    "importance_exponent": (1.0, PER),
    "importance_anneal_samples": (5, PER),
    "recurrent": ("lstm", {}),
    "recurrent_size": (6, LSTM),
    "recurrent_layers": (2, LSTM),
    "burn_in": (1, LSTM),
    "unroll": (5, LSTM),
    "overlap": (3, LSTM),
    "stored_carry": (False, LSTM),
    "learn_from_start": (False, LSTM),
    "priority_mix": (0.1, LSTM | PER),
    "previous_reward": ("raw", LSTM),
    "learning_rate_final": (0.5, LINEAR),
    "max_grad_norm": (0.01, {}),
    "hidden": ((16,), {}),
    "head_hidden": ((4,), {}),
    "exploration_steps": (200, {"exploration": "linear", "exploration_start": 1.0}),
    "double": (False, {"learning_rate": 0.5, "tau": 0.1, "target_period": 1, "train_every": 1, "dueling": False}),
    "ou_theta": (0.5, OU),
    "ou_reset": (False, OU),
    "ladder_exponent": (0.5, {"exploration": "ladder", "exploration_start": 0.9}),
    "rescale_epsilon": (0.1, {"rescale_values": True}),
    "num_atoms": (51, {"critic": "categorical"}),
    "value_range": ((-3.0, 3.0), {"critic": "categorical"}),
    "return_bound": (0.5, {"normalize_rewards": True}),
    "exploration_end": (0.5, {"exploration": "linear"}),
    "critic_action_layer": (1, {}),
    "critic_hidden": ((8,), {}),
    "initializer_final_bound": (0.003, {}),
    "demonstration_priority_epsilon": (1.0, PER),
    "share_by_priority": (True, PER),
    "demonstrations": None,
    "image_features": None,
    "stochastic_evaluation": None,
    "evaluation_epsilon": None,
    "hindsight": None,
    "hindsight_share": None,
    "decoupled_weight_decay": (True, {"actor_weight_decay": 0.1, "weight_decay": 0.1}),
    "train_at_episode_end": (True, {"recurrent": "none"}),
    "clip_range": (0.001, {}),
    "clip_range_decay": ("linear", {"clip_range": 0.01}),
    "clip_value": (True, {"clip_range": 0.01}),
    "target_kl": (1e-6, {"learning_rate": 0.01}),
    "observation_statistics": ("steps", {"normalize_observations": True}),
    "observation_clip": (0.5, {"normalize_observations": True}),
    "normalization_prior": (0.5, {"normalize_rewards": True}),
    "rollout_steps": (4, {}),
    "minibatches": (4, {}),
}


def alternative(algorithm: Algorithm, name: str) -> tuple[Any, dict[str, Any]] | None:
    """Return another value of an option, and the other options that it needs to have an effect; None: do not try it."""
    hint = get_type_hints(type(algorithm))[name]
    entry = (ALTERNATIVES | algorithm.alternatives).get(name, (getattr(algorithm, name), {}))
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
