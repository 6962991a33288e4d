"""Ask an environment with goals about any two goals: the reward, and whether the task is over.

Gymnasium-Robotics' `GoalEnv` defines it: `compute_reward(achieved_goal, desired_goal, info)`, for one pair or for a
batch of pairs, and `compute_terminated`, which some of its environments answer for one pair only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from duetto.environments import state
from duetto.environments.faults import Fault, raised
from duetto.environments.stepping import Stepper
from duetto.errors import CheckpointError, UsageError


class Goals:
    """The functions of one environment, on batches. It owns the environment: `close` it.

    Attributes:
        changed: Whether a callback has set something in the environments: rewards of steps from before may be others.

    Raises:
        UsageError: The environment has no `compute_reward`, or lives in another process.
    """

    def __init__(self, stepper: Stepper) -> None:
        self._stepper = stepper
        self.name: str = stepper.name
        self.changed: bool = False
        env = next(iter(stepper.environments), None)
        reward = None if env is None else _function(env, "compute_reward")
        if env is None or reward is None:
            raise UsageError(
                f"{self.name} has no compute_reward(achieved_goal, desired_goal, info), which hindsight needs to say "
                "what another goal would have brought. Add it (Gymnasium-Robotics' GoalEnv has it), or leave "
                "hindsight off."
            )
        self._reward = reward
        self._terminated = _function(env, "compute_terminated")

    def reward(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
        """Return the rewards (B,) float32 for goals (B, ...)."""
        return self._ask("compute_reward", self._reward, achieved, desired, np.float32)

    def terminated(self, achieved: np.ndarray, desired: np.ndarray) -> np.ndarray | None:
        """Return whether the task is over (B,) bool; None where the environment has no `compute_terminated`."""
        if self._terminated is None:
            return None
        return self._ask("compute_terminated", self._terminated, achieved, desired, np.bool_)

    def set_attr(self, name: str, value: Any) -> None:
        """Set an attribute here too that was set in the environments that are learned from."""
        self._stepper.set_attr(name, value)
        self.changed = True

    def become(self, saved: Any) -> bool:
        """Load the saved state of an environment of this kind, with what was set in it; return False if that fails."""
        self.changed = True
        self._stepper.reset(0)
        if saved is None:
            return False
        try:
            state.load(self._stepper.environments[0], saved)
        except CheckpointError:  # it is made otherwise here, as from the spec of an object
            return False
        return True

    def close(self) -> None:
        """Release the environment."""
        self._stepper.close()

    def _ask(self, name: str, function: Callable[..., Any], achieved: Any, desired: Any, dtype: Any) -> np.ndarray:
        try:
            answer = np.asarray(function(achieved, desired, {}))
            if answer.shape != (len(achieved),):  # it answers for one pair
                answer = np.array([function(*pair, {}) for pair in zip(achieved, desired, strict=True)])
        except Exception as error:
            raise raised(f"{name}, with an empty info,", error, None).told(self.name, self._stepper.steps) from error
        if answer.shape != (len(achieved),) or answer.dtype.kind not in "biuf":
            what = f"{answer.dtype} of shape {answer.shape} for {len(achieved)} pairs"
            raise Fault(f"{name} gave {what}. Return a number for each.").told(self.name, self._stepper.steps)
        return answer.astype(dtype)


def _function(env: gymnasium.Env, name: str) -> Callable[..., Any] | None:
    """Return the function of that name of the outermost wrapper that has it, or of the environment; else None."""
    found = env.get_wrapper_attr(name) if env.has_wrapper_attr(name) else None
    return found if callable(found) else None
