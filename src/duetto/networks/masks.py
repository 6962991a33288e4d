"""Action masks, which are stored as a part of their observation.

    observation {"": x, MASK: m}  or  {"where": x, "camera": y, MASK: m}       m (N, n) bool, True where allowed
    buffers     store it like any other part of an observation
    networks    do not get it; `Head.mask` gives a forbidden action the value -1e15 (`FORBIDDEN`) or the probability 0

So π(·|s) and max_a Q(s, a) in a loss are over the allowed actions of s, and losses need no code for masks.
MultiDiscrete actions have one flat mask, the concatenated masks of their parts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from duetto.networks.spaces import Box, Dict, Discrete, MultiDiscrete, Space

Array = Any
Tree = Any
MASK = "/action_mask"  # the part's name; an observation's own parts never start with /


def with_mask(obs: Tree, mask: Array | None) -> Tree:
    """Return the observation with the mask as a part; unchanged if the mask is None."""
    if mask is None:
        return obs
    return {**(obs if isinstance(obs, dict) else {"": obs}), MASK: mask}


def mask_of(obs: Tree) -> Array | None:
    """Return the observation's mask; None if it has no mask."""
    return obs.get(MASK) if isinstance(obs, dict) else None


def split_mask(obs: Tree) -> tuple[Tree, Array | None]:
    """Return observation and mask: the inverse of `with_mask`."""
    mask = mask_of(obs)
    if mask is None:
        return obs, None
    rest = {name: part for name, part in obs.items() if name != MASK}
    return rest.get("", rest), mask


def choice_sizes(action: Space) -> tuple[int, ...]:
    """Return the number of options of each discrete choice; () for a Box."""
    match action:
        case Discrete():
            return (action.n,)
        case MultiDiscrete():
            return action.nvec
        case Dict():
            return tuple(n for _, part in action.parts for n in choice_sizes(part))
    return ()


def space_with_mask(observation: Space, action: Space) -> Dict:
    """Return the space of an observation with its mask, for buffers that store both."""
    parts = observation.parts if isinstance(observation, Dict) else (("", observation),)
    return Dict((*parts, (MASK, Box((sum(choice_sizes(action)),), "bool", (0.0,), (1.0,)))))


def sample_allowed(random: np.random.Generator, mask: np.ndarray) -> np.ndarray:
    """Draw one allowed action per row of the mask (N, n), uniformly; return them as (N,) int64."""
    rank = random.integers(mask.sum(axis=1))
    return (mask.cumsum(axis=1) > rank[:, None]).argmax(axis=1)
