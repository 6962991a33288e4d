"""BipedalWalker with a new world in each episode, as Gymnasium's other Box2D environments have it.

Gymnasium destroys the bodies and keeps the world, whose contact order then depends on earlier episodes.
"""

from __future__ import annotations

from typing import Any

import gymnasium


def is_bipedal_walker(env: gymnasium.Env) -> bool:
    """Whether this is one of Gymnasium's BipedalWalkers."""
    return type(env).__module__ == "gymnasium.envs.box2d.bipedal_walker"


class NewWorld(gymnasium.Wrapper):
    """A wrapper that makes a new Box2D world before each reset, so that an episode depends on its seed alone."""

    def reset(self, **kwargs: Any) -> Any:
        """See gymnasium.Env."""
        inside: Any = self.unwrapped
        inside._destroy()
        inside.world = type(inside.world)()
        return self.env.reset(**kwargs)
