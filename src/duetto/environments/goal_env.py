"""Compute rewards and terminations for any pair of achieved and desired goals, for hindsight experience replay.

Gymnasium-Robotics' `GoalEnv` defines `compute_reward(achieved_goal, desired_goal, info)`, for one pair or a batch of
pairs. It also defines `compute_terminated`, which in some environments accepts one pair only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from duetto.environments.errors import EnvironmentFault, raised
from duetto.environments.vec_env import VecEnv
from duetto.errors import UsageError


class GoalEnv:
    """The reward and termination functions of one environment, for batches of goals. `close` closes the environment.

    Attributes:
        changed: Whether `set_attr` changed the environment, so that earlier steps may have had other rewards.

    Raises:
        UsageError: The environment has no `compute_reward`, or runs in another process.
    """

    def __init__(self, stepper: VecEnv) -> None:
        self._stepper = stepper
        self.name: str = stepper.name
        self.changed = False
        reward, self._terminated = (_function(stepper, f"compute_{name}") for name in ("reward", "terminated"))
        if reward is None:
            raise UsageError(
                f"{self.name} has no compute_reward(achieved_goal, desired_goal, info), which hindsight needs for the "
                "rewards of other goals. Add it, as in Gymnasium-Robotics' GoalEnv, or leave hindsight off."
            )
        self._reward = reward

    def reward(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        """Return the rewards (B,) float32 for pairs of goals; `achieved` and `desired` are (B, ...)."""
        return self._ask("compute_reward", self._reward, achieved, desired, np.float32)

    def terminated(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray | None:
        """Return (B,) bool, True where a pair of goals (B, ...) ends the task; None without `compute_terminated`."""
        if self._terminated is None:
            return None
        return self._ask("compute_terminated", self._terminated, achieved, desired, np.bool_)

    def set_attr(self, name: str, value: Any) -> None:
        """Set an attribute that was also set in the training environments, since rewards may depend on it."""
        self._stepper.set_attr(name, value)
        self.changed: bool = True

    def close(self) -> None:
        """Release the environment."""
        self._stepper.close()

    def _ask(self, name: str, function: Callable[..., Any], achieved: Any, desired: Any, dtype: Any) -> np.ndarray:
        try:
            answer = np.asarray(function(achieved, desired, {}))
            if answer.shape != (len(achieved),):  # it takes one pair only
                answer = np.array([function(*pair, {}) for pair in zip(achieved, desired, strict=True)])
        except Exception as error:
            raise raised(f"{name}, with an empty info,", error, None).located(self.name, self._stepper.steps) from error
        if answer.shape != (len(achieved),) or answer.dtype.kind not in "biuf":
            what = f"{answer.dtype} of shape {answer.shape} for {len(achieved)} pairs"
            fault = EnvironmentFault(f"{name} gave {what}. Return a number for each.")
            raise fault.located(self.name, self._stepper.steps)
        return answer.astype(dtype)


def _function(stepper: VecEnv, name: str) -> Callable[..., Any] | None:
    """Return the function `name` of the outermost wrapper that has it, or of the environment; None if none has it."""
    for env in stepper.environments[:1]:
        if env.has_wrapper_attr(name) and callable(found := env.get_wrapper_attr(name)):
            return found
    return None
