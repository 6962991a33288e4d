"""Environments so small that their values and best actions are known, and runs on them with small networks.

After Andy Jones's and rejax's probe environments. Observations and actions are single numbers, so that all probes
share the same compiled programs; or actions are one of three choices.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from duetto.algorithms import Algorithm
from duetto.storage.config import Config, RunOptions
from duetto.testing.trials import THREADS
from duetto.training.trainer import Trainer


class Probe(gymnasium.Env):
    """Episodes of `length` steps; a probe says what is observed and what is paid.

    With `choices` actions are integers, which a probe may take for numbers.
    """

    length = 1

    def __init__(self, choices: bool = False) -> None:
        self.observation_space = Box(-10.0, 10.0, (1,), np.float32)
        self.action_space = Discrete(3) if choices else Box(-1.0, 1.0, (1,), np.float32)

    def begin(self) -> None:
        """Draw what an episode needs."""

    def observe(self) -> float:
        return float(self.time)

    def pay(self, action: float) -> float:
        raise NotImplementedError

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        self.begin()
        return self._obs(), {}

    def step(self, action: np.ndarray) -> Any:
        reward = self.pay(float(np.ravel(action)[0]))
        self.time += 1
        return self._obs(), reward, self.time == self.length, False, {}

    def _obs(self) -> np.ndarray:
        return np.array([self.observe()], np.float32)


class Look(Probe):
    """One step, which pays what was observed, -1 or 1: Q is the observation."""

    def begin(self) -> None:
        self.seen = float(self.np_random.choice([-1.0, 1.0]))

    def observe(self) -> float:
        return self.seen if self.time == 0 else 0.0

    def pay(self, action: float) -> float:
        return self.seen


class Wait(Probe):
    """Two steps. The second pays 1 - (a + .5)² of the first one's action a, which it observes as 1 + a.

    The best first action is -.5; there Q is γ at the start, and 1 at the second step.
    """

    length = 2

    def observe(self) -> float:
        return 0.0 if self.time == 0 else 1.0 + self.first

    def pay(self, action: float) -> float:
        if self.time == 0:
            self.first = action
            return 0.0
        return 1.0 - (self.first + 0.5) ** 2


class Pick(Look):
    """One step, which pays 1 for the right one of three choices: 0 where -1 is observed, 2 where 1 is."""

    def __init__(self) -> None:
        super().__init__(choices=True)

    def pay(self, action: float) -> float:
        return float(action == self.seen + 1)


class Foresee(Probe):
    """Two steps. The second pays 1 if the first one's choice was 1; it observes 1 + that choice."""

    length = 2

    def __init__(self) -> None:
        super().__init__(choices=True)

    def observe(self) -> float:
        return 0.0 if self.time == 0 else 1.0 + self.first

    def pay(self, action: float) -> float:
        if self.time == 0:
            self.first = action
        return float(self.time == 1 and self.first == 1)


class Combine(Probe):
    """One step with two choices, of 2 and of 3. Each is worth a half: the first one's 1, the second one's 0."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = MultiDiscrete([2, 3])

    def step(self, action: np.ndarray) -> Any:
        reward = 0.5 * (action[0] == 1) + 0.5 * (action[1] == 0)
        self.time += 1
        return self._obs(), float(reward), True, False, {}


class Recall(Probe):
    """Three steps. What the first one shows, -1 or 1, the last one pays for: 1 - (a - seen / 2)².

    With `choices`, 1 for choice 0 where it was -1 and for choice 2 where it was 1. An agent that sees only the last
    observation, 0, cannot have more than 0.75, or 0.5 with choices, on average.
    """

    length = 3

    def begin(self) -> None:
        self.seen = float(self.np_random.choice([-1.0, 1.0]))

    def observe(self) -> float:
        return self.seen if self.time == 0 else 0.0

    def pay(self, action: float) -> float:
        if self.time < 2:
            return 0.0
        if isinstance(self.action_space, Discrete):
            return float(action == self.seen + 1)
        return 1.0 - (action - self.seen / 2) ** 2


class RecallChoice(Recall):
    """`Recall` with choices."""

    def __init__(self) -> None:
        super().__init__(choices=True)


def run(algorithm: Algorithm, environment: Any, backend: Any, folder: Path, steps: int, **options: Any) -> Trainer:
    """A whole run without evaluations, closed; its parts can still be asked."""
    options |= {"device": "cpu", "threads": THREADS[backend], "evaluate_every": 0, "checkpoint_every": 0}
    chosen = RunOptions(steps=steps, backend=backend, **options)
    trainer = Trainer(Config(algorithm, "a probe", chosen), folder, environment)
    try:
        trainer.run()
    finally:
        trainer.close()
    assert not trainer.stopped, "a signal ended the run early"
    return trainer
