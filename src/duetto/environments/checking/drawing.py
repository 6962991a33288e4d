"""Random actions as an environment takes them: of one space or of several, and allowed ones where it has a mask."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from duetto.environments.actions import ActionMap, Structure, structure
from duetto.environments.allowing import flat
from duetto.functional.distributions import cuts
from duetto.networks import masks


class Drawing:
    """A source of random actions, with a generator of its own."""

    def __init__(self, space: gymnasium.Space[Any], seed: int) -> None:
        self._actions, self._structure = ActionMap(space), Structure(structure(space))
        self._choices = masks.choices(self._actions.space)
        self._random = np.random.default_rng(seed)

    def __call__(self, info: dict[str, Any]) -> tuple[Any, Any]:
        """Draw an action that this info allows; return it twice, without shared memory."""
        row = self._actions.to_environment(self._actions.sample(self._random, 1, self._mask(info)))[0]
        return self._structure.one(row), self._structure.one(row.copy())

    def _mask(self, info: dict[str, Any]) -> np.ndarray | None:
        """Return the info's mask (1, n); None if there is none, or one that is wrong, which is judged elsewhere."""
        mask = flat(info.get("action_mask", ()), self._choices)
        if not self._choices or mask is None or mask.shape != (sum(self._choices),) or mask.dtype.kind not in "biuf":
            return None
        mask = mask.astype(bool)
        return mask[None] if all(mask[low:high].any() for low, high in cuts(self._choices)) else None


def same(one: Any, other: Any) -> bool:
    """Whether two actions are equal."""
    match one:
        case dict():
            return all(same(one[key], other[key]) for key in one)
        case tuple():
            return all(map(same, one, other))
    return np.array_equal(one, other)
