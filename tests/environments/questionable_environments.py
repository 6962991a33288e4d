"""Environments with one flaw each, which makes training impossible, costly or silently wrong."""

from __future__ import annotations

import os
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Text, Tuple

LENGTHS = (5, 9, 7)


class Plain(gymnasium.Env):
    """Correct environment: episodes of several lengths, and rendering."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 - as Gymnasium has it

    def __init__(self, render_mode: str | None = None) -> None:
        self.observation_space: Any = Box(-1, 1, (2,), np.float32)
        self.action_space: Any = Box(-1, 1, (1,), np.float32)
        self.render_mode = render_mode
        self.time = self.episode = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.time, self.episode = 0, 0 if seed is not None else self.episode + 1
        return self.observe(), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        return self.observe(), float(action[0]), np.bool_(self.ended()), np.False_, {}  # as NumPy's comparisons give

    def observe(self) -> Any:
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)

    def ended(self) -> bool:
        return self.time == LENGTHS[self.episode % 3]

    def render(self) -> Any:
        return np.zeros((4, 6, 3), np.uint8)

    def state_dict(self) -> dict[str, Any]:
        return {"time": self.time, "episode": self.episode}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.time, self.episode = state["time"], state["episode"]


class FloatsWithLimit(Plain):
    """float64 observations; most episodes end at a limit of 8 steps, some earlier."""

    def observe(self) -> Any:
        return self.np_random.uniform(-1, 1, 2)

    def ended(self) -> bool:
        return self.time == (5 if self.episode % 3 == 2 else 8)


class Costly(Plain):
    """Reused observation buffer, large values and rewards, action_masks(), episodes of one length, no rendering."""

    metadata = {"render_modes": []}  # noqa: RUF012 - as Gymnasium has it

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = Box(-1e6, 1e6, (2,), np.float32)
        self.buffer = np.zeros(2, np.float32)

    def observe(self) -> Any:
        self.buffer[:] = 1000 * super().observe()
        return self.buffer

    def step(self, action: Any) -> Any:
        obs, reward, *rest = super().step(action)
        return obs, 1e4 * reward, *rest

    def ended(self) -> bool:
        return self.time == 8

    def action_masks(self) -> Any:
        return np.ones(2, bool)


class Wrong(Plain):
    """Observations outside the space, endless episodes, a failing load_state_dict(), and invalid frames."""

    def observe(self) -> Any:
        return super().observe() + np.float32([0, 50])

    def ended(self) -> bool:
        return False

    def load_state_dict(self, state: Any) -> None:
        raise KeyError("episode")

    def render(self) -> Any:
        return np.zeros((4, 6), float)


class Cockpit(Plain):
    """Composite actions with masks for some parts."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space: Any = Dict(
            {"gear": Discrete(3), "pedals": Tuple((Box(0, 1, (2,), np.float32), Discrete(2)))}
        )

    def reset(self, **arguments: Any) -> Any:
        return super().reset(**arguments)[0], {"action_mask": np.array([1, 0, 1, 0, 1])}

    def step(self, action: Any) -> Any:
        if not self.action_space.contains(action) or action["gear"] == 1 or action["pedals"][1] == 0:
            raise ValueError("not allowed")
        obs, reward, terminated, truncated, _ = super().step(np.zeros(1))
        return obs, reward, terminated, truncated, {"action_mask": np.array([1, 0, 1, 0, 1])}


class Unseeded(Plain):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.time, self.episode = 0, self.episode + 1
        return self.observe(), {}

    def observe(self) -> Any:
        return np.random.default_rng().uniform(-1, 1, 2).astype(np.float32)


class DependsOnResets(Plain):
    """Observations depend on the number of earlier resets, not only on the seed."""

    resets = 0

    def reset(self, **arguments: Any) -> Any:
        self.resets += 1
        return super().reset(**arguments)

    def observe(self) -> Any:
        return super().observe() / np.float32(self.resets)


class DependsOnProcess(Plain):
    """Observations depend on the process id."""

    def __init__(self) -> None:
        super().__init__()
        self.number = os.getpid()

    def observe(self) -> Any:
        return super().observe() / np.float32(self.number)


class FailsLater(Plain):
    """Exits, hangs, prints or reads input in its third step."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def step(self, action: Any) -> Any:
        if self.time == 2:
            match self.how:
                case "os._exit":
                    os._exit(3)
                case "hang":
                    print("hm", flush=True)
                    time.sleep(600)
                case "print":
                    print("I am here")
                case "input":
                    input()
        return super().step(action)


class NaN(Plain):
    def observe(self) -> Any:
        return super().observe() * np.float32(np.nan if self.time == 2 else 1)


class Unsupported(Plain):
    """Has an observation or action space that no network supports."""

    def __init__(self, name: str) -> None:
        super().__init__()
        setattr(self, name, Text(3))


class Frames(Plain):
    """A stack of gray images, as a wrapper returns it."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = Box(0, 255, (4, 20, 20, 1), np.uint8)

    def observe(self) -> Any:
        return np.zeros((4, 20, 20, 1), np.uint8)


COUNTED_STEPS: dict[int, int] = {}


class StateOutlivesEpisodes(Plain):
    """Counts steps across episodes, outside its attributes."""

    def observe(self) -> Any:
        COUNTED_STEPS[id(self)] = COUNTED_STEPS.get(id(self), 0) + 1
        return super().observe() * np.float32(0.5 if COUNTED_STEPS[id(self)] > 300 else 1)


def exit_when_made() -> Any:
    raise SystemExit(4)
