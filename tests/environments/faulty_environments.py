"""Environments that fail on purpose at a known step or reset."""

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

# Invalid results of a step, by name.
INVALID_STEPS: dict[str, Any] = {
    "four values": (GOOD, 0.0, False, {}),
    "no values": None,
    "reward None": (GOOD, None, False, False, {}),
    "reward array": (GOOD, np.zeros(1), False, False, {}),
    "terminated None": (GOOD, 0.0, None, False, {}),
    "terminated text": (GOOD, 0.0, "no", False, {}),
    "terminated 2": (GOOD, 0.0, 2, False, {}),
    "info None": (GOOD, 0.0, False, False, None),
    "observation None": (None, 0.0, False, False, {}),
    "observation text": ("here", 0.0, False, False, {}),
    "observation texts": (np.array(["1", "2"]), 0.0, False, False, {}),
    "observation ragged": ([[1.0], [1.0, 2.0]], 0.0, False, False, {}),
    "observation shape": (np.zeros(3, np.float32), 0.0, False, False, {}),
    "observation complex": (np.zeros(2, complex), 0.0, False, False, {}),
}
INVALID_RESETS: dict[str, Any] = {"observation alone": GOOD, "no info": (GOOD, None), "None": None}
# Unusual but valid results of a step.
VALID_STEPS: dict[str, Any] = {
    "NumPy bools": (GOOD, np.float32(0), np.False_, np.False_, {}),
    "0 and 0.0": ([0, 0], 0, 0, 0.0, {}),
    "0-d arrays": (GOOD.astype(float), np.array(0.0), np.array(False), np.array(0), {}),
    "a list": [GOOD, 0.0, False, False, {}],
}


class PickyError(Exception):
    """An error that cannot be pickled, with a message of two lines."""

    def __init__(self, one: Any, two: Any) -> None:
        super().__init__(f"{one}\n{two}")
        self.held = lambda: None


class Faulty(gymnasium.Env):
    """Show `fault` in call `when` of step or reset; with `only`, just in the environment with that seed."""

    def __init__(self, fault: str = "", when: int = 3, only: int | None = None) -> None:
        self.observation_space = Box(-1, 1, (2,), np.float32)
        self.action_space = Box(-1, 1, (1,), np.float32)
        self.fault, self.when, self.only = fault, when, only
        self.calls, self.sound = 0, True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        if seed is not None:
            self.sound = self.only not in (None, seed)
        return self.give((GOOD, {}), INVALID_RESETS)

    def step(self, action: Any) -> Any:
        return self.give((GOOD, 1.0, False, self.calls % 10 == 0, {}), VALID_STEPS | INVALID_STEPS)

    def give(self, sound: Any, faults: dict[str, Any]) -> Any:
        self.calls += 1
        if self.calls != self.when or self.sound:
            return sound
        return FAULT_ACTIONS[self.fault]() if self.fault in FAULT_ACTIONS else faults[self.fault]


class WithChildProcess(gymnasium.Env):
    """Observe the id of a child process, which starts only in workers, not where the trainer reads the spaces."""

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
    """Return whether this process is a worker: its main module has no file."""
    return not hasattr(sys.modules["__main__"], "__file__")


def raise_index_error() -> None:
    return [][3]


def raise_unpicklable_error() -> None:
    raise PickyError("first line", "second line")


def hang() -> None:
    while True:
        time.sleep(60)


FAULT_ACTIONS: dict[str, Callable[[], Any]] = {
    "raise": raise_index_error,
    "raise unpicklable error": raise_unpicklable_error,
    "sys.exit": lambda: sys.exit(3),
    "os._exit": lambda: os._exit(7),
    "segfault": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "hang": hang,
}


class Spaces(gymnasium.Env):
    """Environment with the given spaces; None leaves a space undefined."""

    def __init__(self, observation: Any = None, action: Any = None) -> None:
        if observation is not None:
            self.observation_space = observation
        if action is not None:
            self.action_space = action
