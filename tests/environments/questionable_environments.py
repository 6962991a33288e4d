"""Environments that can be trained on, or nearly: each does one thing that costs something, or is silently wrong."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Tuple

LENGTHS = (5, 9, 7)


class Plain(gymnasium.Env):
    """Nothing wrong: episodes of several lengths, and a picture."""

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
        return self.observe(), float(action[0]), self.ended(), False, {}

    def observe(self) -> Any:
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)

    def ended(self) -> bool:
        return self.time == LENGTHS[self.episode % 3]

    def render(self) -> Any:
        return np.zeros((4, 6, 3), np.uint8)


class OneBuffer(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.buffer = np.zeros(2, np.float32)

    def observe(self) -> Any:
        self.buffer[:] = super().observe()
        return self.buffer


class Doubles(Plain):
    def observe(self) -> Any:
        return super().observe().astype(float)


class Lists(Plain):
    def observe(self) -> Any:
        return super().observe().tolist()


class Outside(Plain):
    def observe(self) -> Any:
        return super().observe() + np.float32([0, 50])


class Large(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.observation_space = Box(-1e6, 1e6, (2,), np.float32)

    def observe(self) -> Any:
        return super().observe() * np.float32(1000)


class Pushy(Plain):
    def step(self, action: Any) -> Any:
        given = super().step(action)
        action *= 2
        return given


class Masked(Plain):
    """Raises where an action is taken that is not allowed."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = Discrete(4)
        self.mask = np.array([0, 1, 1, 0], np.int8)

    def reset(self, **arguments: Any) -> Any:
        return super().reset(**arguments)[0], {"action_mask": self.mask.copy()}

    def step(self, action: Any) -> Any:
        if not self.mask[action]:
            raise ValueError("not allowed")
        obs, _, terminated, truncated, _ = super().step(np.zeros(1))
        return obs, 0.0, terminated, truncated, {"action_mask": self.mask.copy()}


class Cockpit(Plain):
    """Several actions at once, of which some are not allowed."""

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


class Pusher(Cockpit):
    """Changes a part of the action that it was given."""

    def step(self, action: Any) -> Any:
        given = super().step(action)
        action["pedals"][0][:] = 0.5
        return given


class OldLimit(Plain):
    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, _ = super().step(action)
        return obs, reward, terminated, truncated, {"TimeLimit.truncated": terminated}


class SameLength(Plain):
    def step(self, action: Any) -> Any:
        obs, reward, _, _, info = super().step(action)
        return obs, reward, self.time == 8, False, info


class Endless(Plain):
    def ended(self) -> bool:
        return False


class GlobalRandom(Plain):
    def observe(self) -> Any:
        return np.float32([random.uniform(-1, 1), 0])


class Clock(Plain):
    def observe(self) -> Any:
        return np.float32([time.perf_counter_ns() % 1000 / 1000, 0])


class Unseeded(Plain):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.time, self.episode = 0, self.episode + 1
        return self.observe(), {}

    def observe(self) -> Any:
        return np.random.default_rng().uniform(-1, 1, 2).astype(np.float32)


class Huge(Plain):
    def step(self, action: Any) -> Any:
        obs, reward, *rest = super().step(action)
        return obs, 1e4 * reward, *rest


class Remembers(Plain):
    """The first reset with a seed is the only one of its kind."""

    resets = 0

    def reset(self, **arguments: Any) -> Any:
        self.resets += 1
        return super().reset(**arguments)

    def observe(self) -> Any:
        return super().observe() / np.float32(self.resets)


class Numbered(Plain):
    """Each one is another."""

    made = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).made += 1
        self.number = self.made

    def observe(self) -> Any:
        return super().observe() / np.float32(self.number)


class Unsaved(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.held = threading.Lock()


class Blind(Plain):
    metadata = {"render_modes": []}  # noqa: RUF012


class WrongPicture(Plain):
    def render(self) -> Any:
        return np.zeros((4, 6), float)


class PaleInk(Plain):
    def render(self) -> Any:
        return np.zeros((4, 6, 3), float)


class Ends(Plain):
    """Ends its process, or hangs, or only speaks, in its third step."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def step(self, action: Any) -> Any:
        if self.time == 2:
            match self.how:
                case "os._exit":
                    os._exit(3)
                case "signal":
                    os.kill(os.getpid(), signal.SIGKILL)
                case "hang":
                    time.sleep(600)
                case "print":
                    print("I am here")
                case "input":
                    input()
                case "sys.exit":
                    sys.exit(3)
        return super().step(action)
