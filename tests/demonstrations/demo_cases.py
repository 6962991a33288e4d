"""Metadata, random episodes that fit it, and an environment that observes its own history."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from duetto.demonstrations import Demonstration, Demonstrations, Metadata
from duetto.environments import ActionMap, VecEnv, make, to_gymnasium
from duetto.networks.spaces import Box, Dict, Discrete, MultiDiscrete, Space
from duetto.storage import user_code

VECTOR = Box((5,), "uint8", (0.0,), (255.0,))
REAL = Box((3,), "float32", (-np.inf,), (np.inf,))
# An image that Minari would store as JPEG by default, and a key that HDF5 would read as a group.
PICTURES = Dict(
    (
        ("camera/left", Box((32, 40, 3), "uint8", (0.0,), (255.0,))),
        ("direction", Discrete(4, start=1)),
        ("levers", MultiDiscrete((2, 3), shape=(2,), start=(1, 5))),
    )
)
TORQUES = Box((2, 2), "float32", (-2.0, -2.0, -1.0, 0.0), (2.0, 4.0, 1.0, 1.0))

DICT_ACTIONS = Dict((("aim", Discrete(3)), ("move", Box((2,), "float32", (0.0, -np.inf), (4.0, np.inf)))))

SPACES: dict[str, tuple[Space, Space]] = {
    "vector": (VECTOR, Discrete(7)),
    "pictures": (PICTURES, MultiDiscrete((2, 3))),
    "real": (REAL, TORQUES),
}


def description(kind: str = "vector", **changes: Any) -> Metadata:
    observation, action = SPACES[kind]
    given = {"environment": "Some-v0", "options": {"speed": 2}, "expert": "someone", "versions": {"duetto": "1"}}
    return Metadata(**{**given, "observation_space": observation, "action_space": action} | changes)


def _part(space: Space, rows: int, random: np.random.Generator) -> np.ndarray:
    match space:
        case Box(dtype="uint8"):
            return random.integers(0, 256, (rows, *space.shape), dtype=np.uint8)
        case Box():
            return random.normal(size=(rows, *space.shape)).astype(np.float32)
        case Discrete():
            return random.integers(0, space.n, rows)
        case MultiDiscrete():
            return random.integers(0, space.nvec, (rows, len(space.nvec)))
    raise AssertionError


def episode(kind: str = "vector", steps: int = 4, seed: int = 0, terminated: bool = True) -> Demonstration:
    random = np.random.default_rng(seed)
    observation, action = SPACES[kind]
    if isinstance(observation, Dict):
        obs: Any = {name: _part(part, steps + 1, random) for name, part in observation.parts}
    else:
        obs = _part(observation, steps + 1, random)
    acted = (
        ActionMap(to_gymnasium(action))
        .sample(random, steps)
        .reshape(steps, *([-1] * (not isinstance(action, Discrete))))
    )
    reward = random.normal(size=steps).astype(np.float32)
    return Demonstration(obs, acted, reward, terminated, not terminated)


def assert_same_episode(found: Demonstration, wanted: Demonstration) -> None:
    assert isinstance(found.obs, dict) == isinstance(wanted.obs, dict)
    if isinstance(found.obs, dict) and isinstance(wanted.obs, dict):
        assert found.obs.keys() == wanted.obs.keys()
        pairs = [(found.obs[name], wanted.obs[name]) for name in wanted.obs]
    else:
        pairs = [(found.obs, wanted.obs)]
    for one, other in [*pairs, (found.action, wanted.action), (found.reward, wanted.reward)]:
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    assert (found.terminated, found.truncated) == (wanted.terminated, wanted.truncated)


def assert_same_demonstrations(found: Demonstrations, wanted: Demonstrations) -> None:
    assert (found.seeds, found.parts) == (wanted.seeds, wanted.parts)
    for one, other in zip(found.episodes, wanted.episodes, strict=True):
        assert_same_episode(one, other)


class Diary(gymnasium.Env):
    """Observes (seed, step, last action). An episode has 1 + seed % 4 steps; the reward is action * step.

    Episodes with an odd seed are truncated. With `lives`, the first of two lives is lost after half of an episode.
    """

    observation_space = gymnasium.spaces.Box(0, 1000, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, lives: bool = False) -> None:
        self._lives, self._seed = lives, 500

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._seed, self._step = seed if seed is not None else self._seed + 1, 0
        return self._look(0), {"lives": 2}

    def _look(self, action: int) -> np.ndarray:
        return np.array([self._seed, self._step, action], np.float32)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._step += 1
        over, odd, length = self._step == 1 + self._seed % 4, self._seed % 2 == 1, 1 + self._seed % 4
        lives = 1 if 2 * self._step >= length else 2
        return self._look(action), float(action * self._step), over and not odd, over and odd, {"lives": lives}


def diary(num_envs: int = 1) -> VecEnv:
    return make(Diary, num_envs=num_envs)


class AlternatingExpert:
    """Chooses action 1 at steps 1, 3, ... of an episode, and stores the rewards that it receives."""

    def __init__(self, num_envs: int = 1) -> None:
        self._count = np.zeros(num_envs, np.int64)
        self.rewards: list[float] = []

    def __call__(self, obs: Any, starts: np.ndarray) -> np.ndarray:
        self._count = np.where(starts, 1, self._count + 1)
        return self._count % 2

    def rewarded(self, reward: np.ndarray, env: np.ndarray) -> None:
        assert reward.shape == env.shape
        self.rewards += reward.tolist()


EXPERTS = Path(__file__).parents[2] / "examples" / "experts"


def example(name: str) -> Any:
    """Return a module of `examples/experts`, loaded as with `--expert`."""
    path = EXPERTS / f"{name}.py"
    return user_code._run_once(path, path.read_bytes())
