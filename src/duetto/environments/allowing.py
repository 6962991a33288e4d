"""Check which actions an environment allows (`info["action_mask"]`), and put these masks beside observations.

reset, step    the mask belongs to the observation that comes with it: it is for the next action
episode's end  what belongs to the final observation; where the episode terminated nothing follows, and nothing is
               wanted: a mask that is missing there, or forbids all, becomes one that forbids nothing
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

import gymnasium
import numpy as np

from duetto.environments.faults import Fault, shown
from duetto.environments.spaces import from_gymnasium
from duetto.environments.trees import Tree
from duetto.networks import masks

KEY = "action_mask"
MISNAMED = tuple(name for name in masks.OTHERS if name != KEY)  # which nobody reads


class Allowing:
    """The masks of an engine's environments.

    Attributes:
        given: Whether the environments give masks, which their first reset says; None before it.
        ignored: Whether they give masks that are of no use, since their actions are continuous.
        misnamed: A key of their infos that is a mask's name elsewhere; "" where there is none.
    """

    def __init__(self, action_space: gymnasium.Space[Any]) -> None:
        self._choices = masks.choices(from_gymnasium(action_space))
        self.given: bool | None = None
        self.ignored: bool = False
        self.misnamed: str = ""

    def heed(self, names: Container[Any]) -> None:
        """Note a misnamed mask in an info."""
        if self._choices and not self.misnamed:
            self.misnamed = next((name for name in MISNAMED if name in names), "")

    def beside(self, obs: Tree, found: Sequence[Any], over: np.ndarray | None = None) -> Tree:
        """Return observations (N, ...) with the masks `found` in N infos (None: there was none) beside them.

        Where `over` (N,) is true no action follows, and a mask may be missing or forbid everything.
        """
        if self.given is None:
            some = any(one is not None for one in found)
            self.given, self.ignored = some and bool(self._choices), some and not self._choices
        if not self.given:
            for env, one in enumerate(found) if self._choices else ():
                if one is not None:
                    raise Fault(f"info has an {KEY}, and that of its first reset had none. {ALWAYS}", env)
            return obs
        rows = [self._row(one, env, over is not None and bool(over[env])) for env, one in enumerate(found)]
        return masks.beside(obs, np.stack(rows))

    def write(self, tree: Tree, env: int, found: Any) -> None:
        """Overwrite one environment's mask."""
        if self.given:
            assert isinstance(tree, dict)
            tree[masks.MASK][env] = self._row(found, env, over=False)
        else:
            self.beside(tree, [None] * env + [found])

    def _row(self, found: Any, env: int, over: bool) -> np.ndarray:
        size = sum(self._choices)
        if found is None:
            if over:
                return np.ones(size, bool)
            raise Fault(f"info has no {KEY}, and that of its first reset had one. {ALWAYS}", env)
        array = flat(found, self._choices)
        if (
            array is None
            or array.shape != (size,)
            or array.dtype.kind not in "biuf"
            or not ((array == 0) | (array == 1)).all()
        ):
            several = "" if len(self._choices) == 1 else f", those of {list(self._choices)} side by side"
            raise Fault(
                f"info has an {KEY} that is {shown(found)}. Give {size} truth values in an array{several}.", env
            )
        row = array.astype(bool)
        first = 0
        for n in self._choices:
            if not row[first : first + n].any():
                if over:
                    return np.ones(size, bool)
                raise Fault(
                    f"info has an {KEY} that forbids every action, and the episode did not terminate. Allow one, or "
                    "return terminated=True.",
                    env,
                )
            first += n
        return row


ALWAYS = f"Give one in the info of every reset and every step, or never: info[{KEY!r}]."


def in_vector(infos: dict[str, Any], num_envs: int) -> list[Any]:
    """Return the mask of each of N environments from a vector environment's infos; None where one gave none."""
    if KEY not in infos:
        return [None] * num_envs
    there = infos.get(f"_{KEY}", np.ones(num_envs, bool))
    return [infos[KEY][env] if there[env] else None for env in range(num_envs)]


def finally_in_vector(infos: dict[str, Any], num_envs: int) -> list[Any]:
    """Return the same for the final observations, where the next episode's are there already (SAME_STEP)."""
    final = infos.get("final_info", {})
    if isinstance(final, dict):
        return in_vector(final, num_envs)
    return [one.get(KEY) if isinstance(one, dict) else None for one in final]  # Gymnasium 0.26-0.29


def flat(mask: Any, choices: Sequence[int]) -> np.ndarray | None:
    """Return a mask as one array; several choices may have an array each, as in Gymnasium. None where it is no mask."""
    parts = mask if isinstance(mask, tuple | list) and len(choices) > 1 and len(mask) == len(choices) else None
    try:
        if parts is not None and [np.shape(part) for part in parts] == [(n,) for n in choices]:
            return np.concatenate([np.asarray(part) for part in parts])
        return np.asarray(mask)
    except ValueError:
        return None
