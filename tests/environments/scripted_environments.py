"""Small environments whose steps are known in advance, or recorded as ground truth."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Tuple


class Ending(NamedTuple):
    length: int
    terminated: bool
    truncated: bool


class Step(NamedTuple):
    obs: tuple[float, ...]
    action: float
    reward: float
    next_obs: tuple[float, ...]
    terminated: bool
    truncated: bool


class Scripted(gymnasium.Env):
    """Plays its endings in turn, logs every step, and by default reuses one observation buffer."""

    def __init__(self, endings: list[Ending], number: int = 0, reuse: bool = True) -> None:
        self.observation_space = Box(-np.inf, np.inf, (3,), np.float64)
        self.action_space = Box(-2.0, 6.0, (1,), np.float32)
        self.endings, self.number, self.reuse = endings, number, reuse
        self.episode, self.time, self.total = -1, 0, 0.0
        self.buffer = np.zeros(3)
        self.log: list[Step] = []
        self.finished: list[tuple[float, int]] = []

    def _obs(self) -> np.ndarray:
        if not self.reuse:
            self.buffer = np.zeros(3)
        self.buffer[:] = self.number, self.episode, self.time
        return self.buffer

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.episode, self.time, self.total = self.episode + 1, 0, 0.0
        return self._obs(), {}

    def step(self, action: np.ndarray) -> Any:
        before = tuple(self._obs())
        ending = self.endings[self.episode % len(self.endings)]
        self.time += 1
        reward = 0.25 * self.time + self.episode - 3.0 * self.number
        self.total += reward
        last = self.time == ending.length
        terminated, truncated = last and ending.terminated, last and ending.truncated
        after = tuple(self._obs())
        self.log.append(Step(before, float(action[0]), reward, after, terminated, truncated))
        if last:
            self.finished.append((self.total, self.time))
        return self.buffer, reward, terminated, truncated, {}


class Counting(gymnasium.Env):
    """SPEC 1.1's oracle: observations 0, 1, 2, 3; reward 1 for each step; terminates at 3."""

    def __init__(self, render_mode: str | None = None, bad: str = "") -> None:
        self.observation_space = Box(0.0, 3.0, (1,), np.float32)
        self.action_space = Discrete(2, start=5)
        self.render_mode = render_mode
        self.count, self.bad, self.actions = 0, bad, []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.actions.append(int(action))
        self.count += 1
        obs = np.full(1, np.nan if self.bad == "obs" and self.count == 2 else self.count, np.float32)
        if self.bad == "shape":
            obs = np.zeros(2, np.float32)
        reward = np.inf if self.bad == "reward" and self.count == 2 else 1.0
        return obs, reward, self.count == 3, False, {}

    def render(self) -> Any:
        return np.zeros((4, 5, 3), np.uint8)


class Walk(gymnasium.Env):
    """Random walk whose state is in simple attributes."""

    def __init__(self) -> None:
        self.observation_space = Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = Box(-1.0, 1.0, (2,), np.float32)
        self.position = np.zeros(2)
        self.history: list[Any] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.position, self.history = self.np_random.normal(size=2), [(0, "start")]
        return self.position, {}

    def step(self, action: np.ndarray) -> Any:
        self.position += action + self.np_random.normal(size=2)
        self.history.append((len(self.history), float(self.position[0])))
        return self.position, float(self.history[-1][1]), bool(self.np_random.random() < 0.1), False, {}


class Opaque(Walk):
    """Walk with an attribute that cannot be saved."""

    def __init__(self) -> None:
        super().__init__()
        self.secret = object()


class OwnState(Opaque):
    """Opaque with state_dict(), which returns the array that later steps modify."""

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position, "length": len(self.history)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.position = state["position"]
        self.history = [(0, "start")] * state["length"]


class InexactOwnState(OwnState):
    """OwnState whose load_state_dict() returns False: the state is not exact."""

    def load_state_dict(self, state: dict[str, Any]) -> bool:
        super().load_state_dict(state)
        return False


class Components(Walk):
    """Walk with Dict observations."""

    def __init__(self, bad: bool = False) -> None:
        super().__init__()
        self.bad = bad
        self.observation_space = Dict(
            {"b": Tuple((Box(-np.inf, np.inf, (2,), np.float64),)), "a": Discrete(9, start=3)}
        )

    def _see(self) -> Any:
        seen = self.position * (np.nan if self.bad and len(self.history) == 3 else 1.0)
        return {"b": (seen,), "a": 3 + len(self.history) % 9}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return self._see(), {}

    def step(self, action: np.ndarray) -> Any:
        _, *rest = super().step(action)
        return self._see(), *rest
