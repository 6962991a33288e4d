"""A custom vector environment, which Duetto steps as a whole, in its autoreset mode."""

from __future__ import annotations

from gymnasium.vector import SyncVectorEnv


class Whole(SyncVectorEnv):
    """A subclass, because Duetto steps the environments of Gymnasium's `SyncVectorEnv` one by one."""
