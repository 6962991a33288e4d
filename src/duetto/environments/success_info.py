"""Read an episode's success from its last info (`info["is_success"]` or `info["success"]`).

Robotics environments report it, since returns do not tell: with a reward of -1 until the goal is reached, a return of
-50 may be an episode that reached the goal and left it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

KEYS = ("is_success", "success")


def of(infos: Sequence[Mapping[str, Any]], ended: np.ndarray) -> np.ndarray | None:
    """Return the successes of episodes that `ended` (N,) from N infos: 1, 0 or NaN (unknown), (N,) float64.

    None if no info has any.
    """
    found = [_number(info) if over else np.nan for info, over in zip(infos, ended.tolist(), strict=True)]
    return None if all(map(np.isnan, found)) else np.array(found)


def _number(info: Mapping[str, Any]) -> float:
    for key in KEYS:
        if key in info:
            value = np.asarray(info[key])
            if value.size == 1 and value.dtype.kind in "biuf":
                return float(value.item() > 0)
    return np.nan
