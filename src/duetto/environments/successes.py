"""Read whether an episode's task was done from its last info (`info["is_success"]`, or `info["success"]`).

Robotics' environments say so, and rewards alone do not: of one that gives -1 until the goal is reached, a return of -50
may be an episode that reached it late, and lost it. Others say nothing, and then nothing is told of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

KEYS = ("is_success", "success")


def of(infos: Sequence[Mapping[str, Any]], ended: np.ndarray) -> np.ndarray | None:
    """Return the successes in N infos where episodes have `ended` (N,): 1 or 0, NaN where none is said, (N,) float64.

    None where no info says any.
    """
    found = [_number(info) if over else np.nan for info, over in zip(infos, ended.tolist(), strict=True)]
    return None if all(map(np.isnan, found)) else np.array(found)


def in_vector(infos: Mapping[str, Any], ended: np.ndarray) -> np.ndarray | None:
    """Return the same for a vector environment's infos; the final ones where the next episode's are there, too."""
    final = infos.get("final_info")
    if final is not None and not isinstance(final, Mapping):  # Gymnasium 0.26-0.29
        return of([one if isinstance(one, Mapping) else {} for one in final], ended)
    return of([_one(infos if final is None else final, env) for env in range(len(ended))], ended)


def _one(infos: Mapping[str, Any], env: int) -> dict[str, Any]:
    there = {key: infos[key] for key in KEYS if key in infos and np.ndim(infos[key]) > 0}
    return {key: values[env] for key, values in there.items() if infos.get(f"_{key}", np.ones(env + 1, bool))[env]}


def _number(info: Mapping[str, Any]) -> float:
    for key in KEYS:
        if key in info:
            value = np.asarray(info[key])
            if value.size == 1 and value.dtype.kind in "biuf":
                return float(value.item() > 0)
    return np.nan
