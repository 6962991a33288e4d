"""Environments that can be trained on, or nearly: each does one thing that costs something, or is silently wrong."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Text, Tuple

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

    def state_dict(self) -> dict[str, Any]:
        return {"time": self.time, "episode": self.episode}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.time, self.episode = state["time"], state["episode"]


class OneBuffer(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.buffer = np.zeros(2, np.float32)

    def observe(self) -> Any:
        self.buffer[:] = super().observe()
        return self.buffer


class Outside(Plain):
    def observe(self) -> Any:
        return super().observe() + np.float32([0, 50])


class Large(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.observation_space = Box(-1e6, 1e6, (2,), np.float32)

    def observe(self) -> Any:
        return super().observe() * np.float32(1000)


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


class SameLength(Plain):
    def step(self, action: Any) -> Any:
        obs, reward, _, _, info = super().step(action)
        return obs, reward, self.time == 8, False, info


class Endless(Plain):
    def ended(self) -> bool:
        return False


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
    """It is another in each process."""

    def __init__(self) -> None:
        super().__init__()
        self.number = os.getpid()

    def observe(self) -> Any:
        return super().observe() / np.float32(self.number)


class BadLoad(Plain):
    """Saves itself, and cannot load it."""

    def state_dict(self) -> Any:
        return {"time": self.time}

    def load_state_dict(self, state: Any) -> None:
        raise KeyError("episode")


class Blind(Plain):
    metadata = {"render_modes": []}  # noqa: RUF012


class WrongPicture(Plain):
    def render(self) -> Any:
        return np.zeros((4, 6), float)


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
                    print("hm", flush=True)
                    time.sleep(600)
                case "print":
                    print("I am here")
                case "input":
                    input()
                case "sys.exit":
                    sys.exit(3)
        return super().step(action)


class NaN(Plain):
    """Returns NaN in its observations or in its reward."""

    def __init__(self, part: str) -> None:
        super().__init__()
        self.part = part

    def step(self, action: Any) -> Any:
        obs, reward, *rest = super().step(action)
        return (obs * np.float32("nan"), reward, *rest) if self.part == "observation" else (obs, np.inf, *rest)


class Unsupported(Plain):
    """Has an observation or action space that no network takes."""

    def __init__(self, name: str) -> None:
        super().__init__()
        setattr(self, name, Text(3))


class Unbounded(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.action_space = Box(-np.inf, np.inf, (1,))


class Frames(Plain):
    """A stack of gray images, as a wrapper returns it."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = Box(0, 255, (4, 20, 20, 1), np.uint8)

    def observe(self) -> Any:
        return np.zeros((4, 20, 20, 1), np.uint8)


class BothFlags(Plain):
    def step(self, action: Any) -> Any:
        obs, reward, over, _, info = super().step(action)
        return obs, reward, over, over, info


class SometimesBothFlags(Plain):
    def step(self, action: Any) -> Any:
        obs, reward, over, _, info = super().step(action)
        return obs, reward, over, over and self.episode % 3 == 0, info


class NumPyFlags(Plain):
    def step(self, action: Any) -> Any:
        obs, reward, over, _, info = super().step(action)
        return obs, reward, np.bool_(over), np.False_, info


class MaskMethod(Plain):
    def action_masks(self) -> Any:
        return np.ones(2, bool)


class OnlyObservation(Plain):
    def reset(self, **_: Any) -> Any:
        return self.observe()


class Slow(Plain):
    def step(self, action: Any) -> Any:
        time.sleep(0.004)
        return super().step(action)


STEPS: dict[int, int] = {}


class Outlives(Plain):
    """Keeps a count that outlives episodes, and that no attribute holds."""

    def observe(self) -> Any:
        STEPS[id(self)] = STEPS.get(id(self), 0) + 1
        return super().observe() * np.float32(0.5 if STEPS[id(self)] > 300 else 1)


def leaves() -> Any:
    raise SystemExit(4)
