"""Environments so small that their values and best actions are known, and runs on them with small networks.

After Andy Jones's and rejax's probe environments. Observations and actions are single numbers, so that all probes
share the same compiled programs. Some probes have three discrete actions instead.
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
    """Episodes of `length` steps. Subclasses define the observation and the reward.

    With `choices`, actions are integers from 0 to 2.
    """

    length = 1

    def __init__(self, choices: bool = False) -> None:
        self.observation_space = Box(-10.0, 10.0, (1,), np.float32)
        self.action_space = Discrete(3) if choices else Box(-1.0, 1.0, (1,), np.float32)

    def begin(self) -> None:
        """Draw the random values of an episode."""

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
    """One step, whose reward is its observation, -1 or 1. So Q is the observation."""

    def begin(self) -> None:
        self.seen = float(self.np_random.choice([-1.0, 1.0]))

    def observe(self) -> float:
        return self.seen if self.time == 0 else 0.0

    def pay(self, action: float) -> float:
        return self.seen


class Wait(Probe):
    """Two steps. After the first action a, the second observation is 1 + a, and its reward is 1 - (a + 0.5)².

    The best first action is -0.5. With it, Q is γ at the first step and 1 at the second.
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
    """One step with reward 1 for the right action: 0 if the observation is -1, 2 if it is 1."""

    def __init__(self) -> None:
        super().__init__(choices=True)

    def pay(self, action: float) -> float:
        return float(action == self.seen + 1)


class Foresee(Probe):
    """Two steps. The second has reward 1 if the first action was 1. Its observation is 1 + the first action."""

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
    """One step with the actions MultiDiscrete([2, 3]). Reward 0.5 if the first is 1, and 0.5 if the second is 0."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = MultiDiscrete([2, 3])

    def step(self, action: np.ndarray) -> Any:
        reward = 0.5 * (action[0] == 1) + 0.5 * (action[1] == 0)
        self.time += 1
        return self._obs(), float(reward), True, False, {}


class Recall(Probe):
    """Three steps. The first observation `seen` is -1 or 1; the last step has the reward 1 - (a - seen / 2)².

    With `choices` the reward is 1 for action 0 if `seen` was -1, and for action 2 if it was 1. An agent without memory
    sees only the last observation, 0. Its mean return is at most 0.75, or 0.5 with choices.
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
    """`Recall` with discrete actions."""

    def __init__(self) -> None:
        super().__init__(choices=True)


def run(algorithm: Algorithm, environment: Any, backend: Any, folder: Path, steps: int, **options: Any) -> Trainer:
    """Train without evaluations; return the closed trainer."""
    options |= {"device": "cpu", "threads": THREADS[backend], "evaluate_every": 0, "checkpoint_every": 0}
    chosen = RunOptions(steps=steps, backend=backend, **options)
    trainer = Trainer(Config(algorithm, "a probe", chosen), folder, environment)
    try:
        trainer.run()
    finally:
        trainer.close()
    assert not trainer.stopped, "a signal ended the run early"
    return trainer
