"""Measure the cost of resumable environments: the time that they add to a step, a reset, a checkpoint and a resume.

    python benchmarks/resuming.py

The recorder wraps an environment that does nothing, so the times of a step and a reset are the recorder's alone.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from duetto.environments import make
from duetto.environments.exact_resume import EpisodeRecorder

STEPS, ROUNDS = 3000, 10
SPACES: dict[str, tuple[Box, Any]] = {
    "CartPole": (Box(-1, 1, (4,), np.float32), Discrete(2)),
    "HalfCheetah": (Box(-np.inf, np.inf, (17,), np.float64), Box(-1, 1, (6,), np.float32)),
    "Pong": (Box(0, 255, (4, 84, 84), np.uint8), Discrete(6)),
}


class Idle(gymnasium.Env):
    """An environment that does nothing, but has random generators."""

    def __init__(self, observation_space: Box, action_space: Any) -> None:
        self.observation_space, self.action_space = observation_space, action_space
        self._seen = np.zeros(observation_space.shape, observation_space.dtype)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self._seen, {}

    def step(self, action: Any) -> Any:
        return self._seen, 1.0, False, False, {}


class Slow(gymnasium.Wrapper):
    """A wrapper that adds 10 ms to every step."""

    def step(self, action: Any) -> Any:
        time.sleep(0.01)
        return self.env.step(action)


def timed(call: Callable[[], Any], calls: int) -> float:
    """Return the microseconds of a call, the best of several rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        best = min(best, (time.perf_counter() - start) / calls)
    return 1e6 * best


def recording(name: str) -> tuple[float, float]:
    """Return the microseconds that recording adds to a step and to a reset."""
    observation_space, action_space = SPACES[name]
    action_space.seed(0)
    action = action_space.sample()
    bare = Idle(observation_space, action_space)
    recorded = EpisodeRecorder(Idle(observation_space, action_space))
    for env in (bare, recorded):
        for seed in range(4):
            env.reset(seed=seed)
    steps = [timed(lambda env=env: env.step(action), STEPS) for env in (bare, recorded)]
    resets = [timed(env.reset, 300) for env in (bare, recorded)]
    return steps[1] - steps[0], resets[1] - resets[0]


def resuming(environment: Any, num_envs: int, steps: int) -> tuple[float, float]:
    """Return the milliseconds that environments add to a checkpoint and a resume after `steps` vector steps."""
    first, second = make(environment, num_envs=num_envs), make(environment, num_envs=num_envs)
    random = np.random.default_rng(0)
    first.reset(0)
    for _ in range(steps):
        first.step(first.sample_actions(random))
    checkpoints, resumes = [], []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        state = first.state_dict()
        checkpoints.append(time.perf_counter() - start)
        start = time.perf_counter()
        second.load_state_dict(state)
        resumes.append(time.perf_counter() - start)
        assert second.resumed_exactly, second.not_restored
    first.close()
    second.close()
    return 1e3 * statistics.median(checkpoints), 1e3 * statistics.median(resumes)


def main() -> None:
    """Print both tables."""
    for name in SPACES:
        step, reset = recording(name)
        print(f"{name}: recording adds {step:.2f} us to a step and {reset:.2f} us to a reset")
    slow = Slow(gymnasium.make("Pendulum-v1")), Slow(gymnasium.make("Pendulum-v1"))
    made = iter(slow)
    for label, environment, num_envs, steps in (
        ("HalfCheetah-v5", "HalfCheetah-v5", 1, 1500),
        ("HalfCheetah-v5", "HalfCheetah-v5", 16, 1500),
        ("ALE/Pong-v5", "ALE/Pong-v5", 8, 500),
        ("10 ms a step", lambda: next(made), 1, 300),
    ):
        checkpoint, resume = resuming(environment, num_envs, steps)
        print(f"{label}, {num_envs}, after {steps} steps: checkpoint {checkpoint:.2f} ms, resume {resume:.0f} ms")


if __name__ == "__main__":
    main()
