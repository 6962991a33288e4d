"""Check action masks (`info["action_mask"]`), and add them to observations.

reset, step    the mask is for the action after the observation that comes with it
episode's end  the mask of the final observation; after a termination no action follows, so a mask that is missing
               or forbids everything becomes one that allows everything
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from duetto.environments.errors import EnvironmentFault, shown
from duetto.environments.obs_tree import Tree
from duetto.environments.spaces import from_gymnasium
from duetto.functional.distributions import split_bounds
from duetto.networks import masks

KEY = "action_mask"


class ActionMasks:
    """The masks of an engine's environments.

    Attributes:
        given: Whether the environments return masks, known from their first reset on; None before it.
    """

    def __init__(self, action_space: gymnasium.Space[Any]) -> None:
        self._choices = masks.choice_sizes(from_gymnasium(action_space))
        self.given: bool | None = None

    def attach(self, obs: Tree, found: Sequence[Any], over: np.ndarray | None = None) -> Tree:
        """Add the masks `found` in N infos (None: missing) to observations (N, ...).

        If `over` (N,) is true, no action follows: the mask may be missing or forbid everything.
        """
        if self.given is None:
            self.given = bool(self._choices) and any(one is not None for one in found)  # numbers have no masks
        if not self.given:
            for env, one in enumerate(found) if self._choices else ():
                if one is not None:
                    raise EnvironmentFault(f"info has an {KEY}, but that of its first reset had none. {ALWAYS}", env)
            return obs
        rows = [self._row(one, env, over is not None and bool(over[env])) for env, one in enumerate(found)]
        return masks.with_mask(obs, np.stack(rows))

    def write(self, tree: Tree, env: int, found: Any) -> None:
        """Overwrite one environment's mask."""
        if self.given:
            assert isinstance(tree, dict)
            tree[masks.MASK][env] = self._row(found, env, over=False)
        else:
            self.attach(tree, [None] * env + [found])

    def _row(self, found: Any, env: int, over: bool) -> np.ndarray:
        size = sum(self._choices)
        if found is None:
            if over:
                return np.ones(size, bool)
            raise EnvironmentFault(f"info has no {KEY}, but that of its first reset had one. {ALWAYS}", env)
        try:
            array = np.asarray(found)
        except ValueError:  # ragged
            array = np.empty(0)
        if array.shape != (size,) or array.dtype.kind not in "biuf" or np.any(array != (array != 0)):
            raise EnvironmentFault(
                f"info has an {KEY} that is {shown(found)}. Give {size} truth values in one flat array.", env
            )
        row = array.astype(bool)
        if all(row[low:high].any() for low, high in split_bounds(self._choices)):
            return row
        if over:
            return np.ones(size, bool)
        raise EnvironmentFault(
            f"info has an {KEY} that forbids every action, and the episode did not terminate. Allow one, or return "
            "terminated=True.",
            env,
        )


ALWAYS = f"Give one in the info of every reset and every step, or never: info[{KEY!r}]."
