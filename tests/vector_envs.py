"""A vector environment that Duetto steps as a whole, in its own autoreset mode, whatever its environments are."""

from __future__ import annotations

from gymnasium.vector import SyncVectorEnv


class Whole(SyncVectorEnv):
    """Not Gymnasium's own class, whose environments Duetto steps one by one."""
