"""Environments that do wrong on purpose, in a step or a reset that is known."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box

GOOD = np.zeros(2, np.float32)

# What a step gives, by name.
STEPS: dict[str, Any] = {
    "four values": (GOOD, 0.0, False, {}),
    "six values": (GOOD, 0.0, False, False, {}, 0),
    "no values": None,
    "reward None": (GOOD, None, False, False, {}),
    "reward text": (GOOD, "3.5", False, False, {}),
    "reward array": (GOOD, np.zeros(1), False, False, {}),
    "terminated None": (GOOD, 0.0, None, False, {}),
    "terminated text": (GOOD, 0.0, "no", False, {}),
    "terminated 2": (GOOD, 0.0, 2, False, {}),
    "truncated None": (GOOD, 0.0, False, None, {}),
    "info None": (GOOD, 0.0, False, False, None),
    "observation None": (None, 0.0, False, False, {}),
    "observation text": ("here", 0.0, False, False, {}),
    "observation texts": (np.array(["1", "2"]), 0.0, False, False, {}),
    "observation ragged": ([[1.0], [1.0, 2.0]], 0.0, False, False, {}),
    "observation shape": (np.zeros(3, np.float32), 0.0, False, False, {}),
    "observation complex": (np.zeros(2, complex), 0.0, False, False, {}),
}
RESETS: dict[str, Any] = {"an observation": GOOD, "no info": (GOOD, None), "nothing": None}
# What is unusual and right.
FINE: dict[str, Any] = {
    "NumPy's truth values": (GOOD, np.float32(0), np.False_, np.False_, {}),
    "0 and 0.0": ([0, 0], 0, 0, 0.0, {}),
    "arrays without axes": (GOOD.astype(float), np.array(0.0), np.array(False), np.array(0), {}),
    "a list": [GOOD, 0.0, False, False, {}],
}


class PickyError(Exception):
    """Cannot be pickled, and says so in several lines."""

    def __init__(self, one: Any, two: Any) -> None:
        super().__init__(f"{one}\n{two}")
        self.held = lambda: None


class Faulty(gymnasium.Env):
    """Does what `fault` names in the `when`-th call of step or reset, where it started with the seed `only` or any."""

    def __init__(self, fault: str = "", when: int = 3, only: int | None = None) -> None:
        self.observation_space = Box(-1, 1, (2,), np.float32)
        self.action_space = Box(-1, 1, (1,), np.float32)
        self.fault, self.when, self.only = fault, when, only
        self.calls, self.sound = 0, True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        if seed is not None:
            self.sound = self.only not in (None, seed)
        return self.give((GOOD, {}), RESETS)

    def step(self, action: Any) -> Any:
        return self.give((GOOD, 1.0, False, self.calls % 10 == 0, {}), FINE | STEPS)

    def give(self, sound: Any, faults: dict[str, Any]) -> Any:
        self.calls += 1
        if self.calls != self.when or self.sound:
            return sound
        return ACTS[self.fault]() if self.fault in ACTS else faults[self.fault]


class Parent(gymnasium.Env):
    """Has a process of its own, whose id it observes; it is made in workers alone, not in the trainer's first look."""

    def __init__(self) -> None:
        self.observation_space, self.action_space = Box(0, 2**30, (1,), np.int32), Box(-1, 1, (1,), np.float32)
        self.child = multiprocessing.get_context("fork").Process(target=hang)
        if in_worker():
            self.child.start()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return np.array([self.child.pid], np.int32), {}

    def step(self, action: Any) -> Any:
        return self.reset()[0], 0.0, False, False, {}

    def close(self) -> None:
        if self.child.pid is not None:
            self.child.terminate()
            self.child.join()


def in_worker() -> bool:
    """Whether this is a worker: its program is no file."""
    return not hasattr(sys.modules["__main__"], "__file__")


def fail() -> None:
    return [][3]


def refuse() -> None:
    raise PickyError("first line", "second line")


def hang() -> None:
    while True:
        time.sleep(60)


ACTS: dict[str, Callable[[], Any]] = {
    "raise": fail,
    "raise what cannot be sent": refuse,
    "sys.exit": lambda: sys.exit(3),
    "os._exit": lambda: os._exit(7),
    "segfault": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "hang": hang,
}


class Spaces(gymnasium.Env):
    """Has the spaces that it is given; none where that is None."""

    def __init__(self, observation: Any = None, action: Any = None) -> None:
        if observation is not None:
            self.observation_space = observation
        if action is not None:
            self.action_space = action
