"""What every contender has to do, and the clock that measures it: the same for all."""

from __future__ import annotations

import json
import os
import time
from typing import Any, NoReturn

import gymnasium

ENVIRONMENT = "HalfCheetah-v5"
RANDOM_STEPS = 1_000  # learning starts after them
WARM_STEPS = 500  # learning steps before the clock starts: compilation, caches
STEPS = 1_000_000  # the run's length that each library is told; the clock ends it long before
CAPACITY = 1_000_000
SKRL_JAX_CAPACITY = 15_000  # of its DDPG example: it copies the whole memory at every step, 3 steps/s with a million
BATCH = 256
HIDDEN = (400, 300)
LEARNING_RATE = 1e-3
NOISE = 0.1
TAU, DISCOUNT = 0.005, 0.99
POLICY_DELAY, TARGET_NOISE, TARGET_CLIP = 2, 0.2, 0.5  # TD3


class Clock(gymnasium.Wrapper):
    """The environment, which counts its steps; once `seconds` are measured it prints them and ends the process.

    It measures from the beginning of one step to the beginning of another: whole rounds of acting, stepping, storing,
    sampling and updating.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(gymnasium.make(ENVIRONMENT, disable_env_checker=True))
        self._seconds = seconds
        self._steps = -RANDOM_STEPS - WARM_STEPS
        self._updates = 0
        self._began = self._cpu_began = 0.0

    def step(self, action: Any) -> Any:
        if self._steps == 0:
            self._began, self._cpu_began, self._updates = time.perf_counter(), time.process_time(), 0
        elif self._steps > 0 and time.perf_counter() - self._began >= self._seconds:
            self._finish()
        self._steps += 1
        return super().step(action)

    def watch(self, owner: Any, method: str) -> None:
        """Count the calls of the method that makes one update, to show that there is one per step."""
        update = getattr(owner, method)

        def counted(*args: Any, **kwargs: Any) -> Any:
            self._updates += 1
            return update(*args, **kwargs)

        setattr(owner, method, counted)

    def _finish(self) -> NoReturn:
        result = {
            "steps": self._steps,
            "updates": self._updates,
            "seconds": time.perf_counter() - self._began,
            "cpu_seconds": time.process_time() - self._cpu_began,
        }
        print("\n" + json.dumps(result), flush=True)
        os._exit(0)  # from the midst of any library's loop, without what it would still write
