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
from duetto.networks import masks

KEY = "action_mask"


class ActionMasks:
    """The masks of an engine's environments.

    Attributes:
        given: Whether the environments return masks, known from their first reset on; None before it.
        ignored: Whether they return masks for continuous actions, which have none.
    """

    def __init__(self, action_space: gymnasium.Space[Any]) -> None:
        self._choices = masks.choice_sizes(from_gymnasium(action_space))
        self.given: bool | None = None
        self.ignored: bool = False

    def attach(self, obs: Tree, found: Sequence[Any], over: np.ndarray | None = None) -> Tree:
        """Add the masks `found` in N infos (None: missing) to observations (N, ...).

        If `over` (N,) is true, no action follows: the mask may be missing or forbid everything.
        """
        if self.given is None:
            some = any(one is not None for one in found)
            self.given, self.ignored = some and bool(self._choices), some and not self._choices
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
        array = flat(found, self._choices)
        if (
            array is None
            or array.shape != (size,)
            or array.dtype.kind not in "biuf"
            or not ((array == 0) | (array == 1)).all()
        ):
            several = "" if len(self._choices) == 1 else f", those of {list(self._choices)} side by side"
            raise EnvironmentFault(
                f"info has an {KEY} that is {shown(found)}. Give {size} truth values in an array{several}.", env
            )
        row = array.astype(bool)
        first = 0
        for n in self._choices:
            if not row[first : first + n].any():
                if over:
                    return np.ones(size, bool)
                raise EnvironmentFault(
                    f"info has an {KEY} that forbids every action, and the episode did not terminate. Allow one, or "
                    "return terminated=True.",
                    env,
                )
            first += n
        return row


ALWAYS = f"Give one in the info of every reset and every step, or never: info[{KEY!r}]."


def flat(mask: Any, choices: Sequence[int]) -> np.ndarray | None:
    """Return a mask as one array, also if each choice has its own array, as in Gymnasium; None if it is no mask."""
    parts = mask if isinstance(mask, tuple | list) and len(choices) > 1 and len(mask) == len(choices) else None
    try:
        if parts is not None and [np.shape(part) for part in parts] == [(n,) for n in choices]:
            return np.concatenate([np.asarray(part) for part in parts])
        return np.asarray(mask)
    except ValueError:
        return None
