"""Wrappers after which an episode depends on its seed alone, for BipedalWalker and pybullet-envs-gymnasium."""

from __future__ import annotations

from typing import Any

import gymnasium
from typing_extensions import override

from duetto.environments import silence

# They move bodies that a reset leaves where they are, which shows episodes later.
_OUTLIVES = {"PusherBulletEnv", "ThrowerBulletEnv", "HumanoidFlagrunHarderBulletEnv"}


def wrap(env: gymnasium.Env) -> gymnasium.Env:
    """Wrap one of these environments; return others unchanged."""
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

    The first reset builds the world, later ones restore it, and their episodes differ. This wrapper resets twice at
    first.
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
