"""Wrappers that hide velocities, and wrappers that make an episode depend only on the seed of its reset."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import TransformObservation
from typing_extensions import override

from duetto.environments import silence
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
# These environments move bodies that a reset does not put back, so an episode depends on earlier episodes. A resume
# never repeats their episodes.
_OUTLIVES = {"PusherBulletEnv", "ThrowerBulletEnv", "HumanoidFlagrunHarderBulletEnv"}


def hide_velocity(env: gymnasium.Env) -> gymnasium.Env:
    """Wrap an environment so that its observations have no velocities, and an agent needs memory."""
    name = env.spec.name if env.spec and env.spec.namespace is None else ""
    if name not in KEPT:
        raise UsageError(f"{env.spec and env.spec.id} has no option {OPTION}. These have it: {', '.join(KEPT)}.")
    space: Any = env.observation_space
    kept = np.array(KEPT[name])
    smaller = gymnasium.spaces.Box(space.low[kept], space.high[kept], dtype=space.dtype)
    return TransformObservation(env, lambda observation: observation[kept], smaller)


def fix_resets(env: gymnasium.Env) -> gymnasium.Env:
    """Wrap PyBullet's environments in `QuietStart` and BipedalWalker in `NewWorld`; return others unchanged."""
    module = type(env.unwrapped).__module__
    if module.startswith("pybullet_envs_gymnasium."):
        return QuietStart(env)
    return NewWorld(env) if module == "gymnasium.envs.box2d.bipedal_walker" else env


class NewWorld(gymnasium.Wrapper):
    """A wrapper that makes a new Box2D world before each reset, as Gymnasium's other Box2D environments do.

    BipedalWalker destroys the bodies and keeps the world, whose contact order then depends on earlier episodes.
    """

    @override
    def reset(self, **kwargs: Any) -> Any:
        inside: Any = self.unwrapped
        inside._destroy()
        inside.world = type(inside.world)()
        return self.env.reset(**kwargs)


class QuietStart(gymnasium.Wrapper):
    """A wrapper that hides the output of Bullet's C code when the first reset connects a physics client.

    The first reset builds the world; later resets restore it, which gives different episodes. So this wrapper resets
    twice the first time.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self._connected = False
        if type(env.unwrapped).__name__ in _OUTLIVES:
            self.metadata = env.metadata | {"resets_only": True}

    @override
    def reset(self, **kwargs: Any) -> Any:
        if not self._connected:
            self._connected = True
            with silence.output():
                self.env.reset(**kwargs)
        return self.env.reset(**kwargs)
