"""Hide velocities from classic control tasks, so that an agent has to remember what it saw before."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from duetto.errors import UsageError

OPTION = "mask_velocity"
KEPT: dict[str, tuple[int, ...]] = {  # elements of an observation that are not velocities
    "CartPole": (0, 2),  # position, angle
    "Pendulum": (0, 1),  # cosine and sine
    "MountainCar": (0,),  # position
    "MountainCarContinuous": (0,),
    "Acrobot": (0, 1, 2, 3),  # cosines and sines of both joints
    "LunarLander": (0, 1, 4, 6, 7),  # position, angle, contacts of the legs
    "LunarLanderContinuous": (0, 1, 4, 6, 7),
}


class HideVelocity(gymnasium.ObservationWrapper):
    """A wrapper that keeps only the elements of an observation that are not velocities."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        name = env.spec.name if env.spec and env.spec.namespace is None else ""
        if name not in KEPT:
            raise UsageError(f"{env.spec and env.spec.id} has no option {OPTION}. These have it: {', '.join(KEPT)}.")
        self._kept = np.array(KEPT[name])
        space: Any = env.observation_space
        self.observation_space = gymnasium.spaces.Box(space.low[self._kept], space.high[self._kept], dtype=space.dtype)

    def observation(self, observation: Any) -> Any:
        """Return the elements that are kept."""
        return observation[self._kept]
