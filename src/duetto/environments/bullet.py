"""pybullet-envs-gymnasium's environments: a quiet start, and episodes that depend on their seed alone."""

from __future__ import annotations

from typing import Any

import gymnasium

from duetto.environments import silence

# They move bodies that a reset leaves where they are, which shows episodes later.
_OUTLIVES = {"PusherBulletEnv", "ThrowerBulletEnv", "HumanoidFlagrunHarderBulletEnv"}


def is_bullet(env: gymnasium.Env) -> bool:
    """Whether this is one of pybullet-envs-gymnasium's own environments."""
    return type(env).__module__.startswith("pybullet_envs_gymnasium.")


class QuietStart(gymnasium.Wrapper):
    """A wrapper that hides the output of Bullet's C code when the first reset connects a physics client.

    The first reset builds the world, later ones restore it, and their episodes differ. This wrapper resets twice at
    first, so that an episode depends only on its seed.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self._connected = False
        if type(env.unwrapped).__name__ in _OUTLIVES:
            self.metadata = env.metadata | {"resets_only": True}

    def reset(self, **kwargs: Any) -> Any:
        """See gymnasium.Env."""
        if self._connected:
            return self.env.reset(**kwargs)
        self._connected = True
        with silence.output():
            self.env.reset(**kwargs)
        return self.env.reset(**kwargs)
