"""The clock that measures every contender in the same way, from inside its own training loop."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from dataclasses import replace
from typing import Any, NoReturn

import gymnasium
from task import Task


class Clock:
    """Told of each step at the same place of the loop; once `seconds` are measured it prints them and ends the process.

        steps    |  warm-up  |  cycle  |  cycle  |  cycle  |  cycle ...
                             ^ begins              seconds ^ ends: the first boundary after them

    A cycle is what repeats: a step and its update for TD3, a rollout and its epochs for PPO. Only whole ones count.
    """

    def __init__(self, task: Task, seconds: float) -> None:
        self._task, self._seconds = task, seconds
        self._updates = self._updates_before = 0
        self._began = self._cpu_began = 0.0

    def of_all(self, seeds: int) -> Clock:
        """One that is told of the steps and updates of several seeds together."""
        return Clock(replace(self._task, num_envs=seeds * self._task.num_envs), self._seconds)  # type: ignore[arg-type]

    def environment(self) -> Any:
        """One environment, whose steps are counted."""
        return self.count_steps(gymnasium.make(self._task.environment, disable_env_checker=True))

    def count_steps(self, environment: Any) -> Any:
        """An environment, or a library's vector of all of them; its calls of `step` tell the clock from now on."""
        step, done = environment.step, 0

        def counted(*args: Any, **kwargs: Any) -> Any:
            nonlocal done
            self.at(done, self._updates)
            done += self._task.num_envs
            return step(*args, **kwargs)

        environment.step = counted
        return environment

    def count_updates(self, owner: Any, method: str, each: int = 1) -> None:
        """Count the calls of a method that makes `each` updates, to show that none is left out."""
        update = getattr(owner, method)

        def counted(*args: Any, **kwargs: Any) -> Any:
            self._updates += each
            return update(*args, **kwargs)

        setattr(owner, method, counted)

    def at(self, steps: int, updates: int) -> None:
        """Note the steps over all environments and the updates that are made so far."""
        if steps < self._task.warm_steps or steps % self._task.cycle:
            return
        if steps == self._task.warm_steps:
            self._updates_before = updates
            self._began, self._cpu_began = time.perf_counter(), time.process_time()
        elif time.perf_counter() - self._began >= self._seconds:
            self._finish(steps - self._task.warm_steps, updates - self._updates_before)

    def _finish(self, steps: int, updates: int) -> NoReturn:
        result = {
            "steps": steps,
            "updates": updates,
            "seconds": time.perf_counter() - self._began,
            "cpu_seconds": time.process_time() - self._cpu_began,
        }
        print("\n" + json.dumps(result), flush=True)
        for process in multiprocessing.active_children():
            process.terminate()
        os._exit(0)  # from the midst of any library's loop, without what it would still write
