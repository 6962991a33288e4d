"""Share N environments among several engines, and split and join their saved states.

A saved state has an entry "0" .. "N-1" per environment; its other entries have a row per environment.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np


def shares(num_envs: int, parts: int) -> list[range]:
    """Return the environments of each part: contiguous, in sizes that differ by at most 1."""
    bounds = [num_envs * part // parts for part in range(parts + 1)]
    return [range(start, stop) for start, stop in pairwise(bounds)]


def join_saved(parts: list[Any]) -> Any:
    """Join the parts' `save`, in order, into one engine's; None if one is None."""
    first = parts[0]
    if any(part is None for part in parts):
        return None
    if isinstance(first, np.ndarray):
        return np.concatenate(parts)
    if isinstance(first, list):
        return [row for part in parts for row in part]
    numbered = [part[str(env)] for part in parts for env in range(_count(part))]
    others = {name: join_saved([part[name] for part in parts]) for name in first if not name.isdigit()}
    return {str(env): one for env, one in enumerate(numbered)} | others


def take_saved(saved: Any, share: range) -> Any:
    """Return the part of one engine's `save` for the environments `share`."""
    if isinstance(saved, np.ndarray | list):
        return saved[share.start : share.stop]
    numbered = {str(i): saved[str(env)] for i, env in enumerate(share) if str(env) in saved}
    return numbered | {name: take_saved(part, share) for name, part in saved.items() if not name.isdigit()}


def _count(saved: dict[str, Any]) -> int:
    return sum(name.isdigit() for name in saved)


class Tail(NamedTuple):
    """The new bytes of an array, after `after` known bytes."""

    after: int
    end: np.ndarray


def tails(state: Any, known: Any) -> Any:
    """Return the state with only the new bytes of arrays that extend those of `known`.

    This keeps an actor's messages small as its episodes grow.
    """
    if isinstance(state, dict):
        before = known if isinstance(known, dict) else {}
        return {name: tails(part, before.get(name)) for name, part in state.items()}
    if isinstance(state, np.ndarray) and isinstance(known, np.ndarray) and state.dtype == known.dtype == np.uint8:
        n = len(known) if known.ndim == state.ndim == 1 else 0
        if n and np.array_equal(state[:n], known):
            return Tail(n, state[n:])
    return state


def continued(state: Any, known: Any) -> Any:
    """Undo `tails`."""
    if isinstance(state, dict):
        before = known if isinstance(known, dict) else {}
        return {name: continued(part, before.get(name)) for name, part in state.items()}
    return np.concatenate([known[: state.after], state.end]) if isinstance(state, Tail) else state
