"""Which actions are allowed: a mask is a part of the observation that it belongs to, and travels with it.

    observation {"": x, MASK: m}  or  {"where": x, "camera": y, MASK: m}       m (N, n) bool, True where allowed
    memories    store it as they store any part, of this observation and of the next
    networks    do not see it: what a head gives for a forbidden action is -∞ (`FORBIDDEN`), a probability of 0

So a loss that asks for π(·|s) or max_a Q(s, a) means the allowed actions of s, and says nothing of masks. Several
choices have one flat mask, the parts' side by side.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from duetto.functional.values import allowed
from duetto.networks.spaces import Box, Dict, Discrete, MultiDiscrete, Space
from duetto.networks.specs import ActionValues, Network, Policy

Array = Any
Tree = Any
MASK = "info/action_mask"  # the part's name; Gymnasium's environments have it in their info

OTHERS = ("action_mask", "action_masks", "avail_actions", "legal_actions", "valid_actions")  # what others call it


def beside(obs: Tree, mask: Array | None) -> Tree:
    """The observation with a mask beside it; unchanged where the mask is None."""
    if mask is None:
        return obs
    return {**(obs if isinstance(obs, dict) else {"": obs}), MASK: mask}


def of(obs: Tree) -> Array | None:
    """The mask beside an observation; None without one."""
    return obs.get(MASK) if isinstance(obs, dict) else None


def parted(obs: Tree) -> tuple[Tree, Array | None]:
    """The observation as its space says, and the mask beside it: the inverse of `beside`."""
    mask = of(obs)
    if mask is None:
        return obs, None
    rest = {name: part for name, part in obs.items() if name != MASK}
    return rest.get("", rest), mask


def part_of(observation: Space, action: Space) -> str:
    """Name of the part of an observation that other libraries read as a mask; "" where there is none."""
    if not (isinstance(observation, Dict) and choices(action)):
        return ""
    return next((name for name, _ in observation.parts if name in OTHERS), "")


def choices(action: Space) -> tuple[int, ...]:
    """Number of actions of each choice that a mask covers; () for an action of numbers."""
    match action:
        case Discrete():
            return (action.n,)
        case MultiDiscrete():
            return action.nvec
        case Dict():
            return tuple(n for _, part in action.parts for n in choices(part))
    return ()


def space(observation: Space, action: Space) -> Dict:
    """The space of an observation together with its mask, for what stores both."""
    parts = observation.parts if isinstance(observation, Dict) else (("", observation),)
    return Dict((*parts, (MASK, Box((sum(choices(action)),), "bool", (0.0,), (1.0,)))))


def masked(spec: Network, outputs: Any, mask: Array | None) -> Any:
    """The heads' outputs for allowed actions alone; the mask has the axes of the outputs, but not an ensemble's."""
    if mask is None:
        return outputs
    if not isinstance(spec.head, tuple):
        return _masked(spec.head, outputs, mask)
    return tuple(_masked(head, output, mask) for head, output in zip(spec.heads, outputs, strict=True))


def _masked(head: Any, output: Any, mask: Array) -> Any:
    match head:
        case Policy():
            return output.among(mask)
        case ActionValues():
            return allowed(output, mask)
    return output


def drawn(random: np.random.Generator, mask: np.ndarray) -> np.ndarray:
    """An allowed action for each of N choices, (N,) int64, all equally likely; `mask` is (N, n)."""
    rank = random.integers(mask.sum(axis=1))
    return (mask.cumsum(axis=1) > rank[:, None]).argmax(axis=1)
