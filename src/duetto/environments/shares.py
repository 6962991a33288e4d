"""Share N environments among several engines, and cut and join their states and outcomes as if of one engine.

A saved state has an entry "0" .. "N-1" for each environment, and whatever else is in it has a row for each.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from duetto.environments.engines import Outcome
from duetto.functional.trees import merged


def shares(num_envs: int, parts: int) -> list[range]:
    """Return the environments of each part: contiguous, and as even as can be."""
    bounds = [num_envs * part // parts for part in range(parts + 1)]
    return [range(start, stop) for start, stop in pairwise(bounds)]


def join_saved(parts: list[Any]) -> Any:
    """Join the parts' `save`, in order, into one engine's; None where one of them cannot be saved."""
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
    if not isinstance(saved, dict):  # of the whole, as Atari's checksum once was: it says nothing of a part
        return None
    numbered = {str(i): saved[str(env)] for i, env in enumerate(share) if str(env) in saved}
    return numbered | {name: take_saved(part, share) for name, part in saved.items() if not name.isdigit()}


def join_outcomes(parts: list[Outcome]) -> Outcome:
    """Join the parts' outcomes, in order, into one engine's `Outcome`."""
    optional: dict[str, np.ndarray | None] = {
        "bogus": _joined(parts, "bogus", lambda part: np.zeros(len(part.reward), bool)),
        "score": _joined(parts, "score", lambda part: part.reward),
        "ended": _joined(parts, "ended", lambda part: part.terminated | part.truncated),
        "lost": _joined(parts, "lost", lambda part: np.zeros(len(part.reward), bool)),
        "success": _joined(parts, "success", lambda part: np.full(len(part.reward), np.nan)),
        "lives": None if any(part.lives is None for part in parts) else _joined(parts, "lives", None),
    }
    next_obs, obs = (merged(np.concatenate, [getattr(part, name) for part in parts]) for name in ("next_obs", "obs"))
    whole = [np.concatenate([part[i] for part in parts]) for i in (1, 2, 3, 5)]  # type: ignore[misc]
    reward, terminated, truncated, starts = whole
    return Outcome(next_obs, reward, terminated, truncated, obs, starts, **optional)


def _count(saved: dict[str, Any]) -> int:
    return sum(name.isdigit() for name in saved)


def _joined(parts: list[Outcome], name: str, otherwise: Any) -> np.ndarray | None:
    rows = [getattr(part, name) for part in parts]
    if all(row is None for row in rows):
        return None
    return np.concatenate([otherwise(part) if row is None else row for part, row in zip(parts, rows, strict=True)])
