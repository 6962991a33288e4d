"""Inputs of a recurrent network: stretches of successive observations, and where each of them stands."""

from __future__ import annotations

from typing import Any, NamedTuple

Array = Any
Tree = Any


class Window(NamedTuple):
    """B stretches of S successive observations.

    position     0  1  2  3  4  5  6        S = 7 observations, burn-in 2
    starts       .  .  .  .  .  .  .        True: an episode's first observation, the carry is zeroed before it
    carry      ^                            the state before position 0
    at                 2  3  4  5           outputs are wanted for these positions
    """

    obs: Tree  # (B, S, ...)
    previous_action: Array  # (B, S) int, -1 for none; or (B, S, A) float, zeros for none
    previous_reward: Array  # (B, S), 0 for none
    starts: Array  # (B, S) bool
    carry: dict[
        str, Array
    ]  # (B, layers, size) each, the state before the first observation; zeros where one is missing
    fresh: Array  # (B,) bool, `carry` is exact because an episode begins here: no burn-in is needed
    at: Array | None  # (B, T) int in 0 .. S-1; None while acting, when S = 1 and outputs have no axis for time

    def within(self, prefix: str) -> Window:
        """The window with that part of the carry alone whose names begin with `prefix`, which they lose."""
        own = {name.removeprefix(prefix): part for name, part in self.carry.items() if name.startswith(prefix)}
        return self._replace(carry=own)
