"""The input of a recurrent network: B sequences of S successive observations."""

from __future__ import annotations

from typing import Any, NamedTuple

Array = Any
Tree = Any


class SequenceInput(NamedTuple):
    """B sequences of S successive observations.

    position     0  1  2  3  4  5  6        S = 7 observations, burn-in 2
    starts       .  .  .  .  .  .  .        True: an episode's first observation, the carry is zeroed before it
    carry      ^                            the state before position 0
    query_steps        2  3  4  5           positions of the outputs
    """

    obs: Tree  # (B, S, ...)
    previous_action: Array  # (B, S) int, -1 for none; or (B, S, A) float, zeros for none
    previous_reward: Array  # (B, S), 0 for none
    starts: Array  # (B, S) bool
    carry: dict[str, Array]  # (B, layers, size) each, the state before position 0; zeros where one is missing
    is_first: Array  # (B,) bool, an episode starts at position 0: `carry` is exact, and no burn-in is needed
    query_steps: Array | None  # (B, T) int in 0 .. S-1; None while acting: S = 1, and outputs have no time axis

    def within(self, prefix: str) -> SequenceInput:
        """Return the sequences with the carry's arrays whose names start with `prefix`, without it."""
        carry = {name.removeprefix(prefix): part for name, part in self.carry.items() if name.startswith(prefix)}
        return self._replace(carry=carry)
