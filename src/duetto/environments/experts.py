"""Bots that solve MiniGrid and BabyAI, as policies: they look into the environments, and play as an agent would.

BabyAI's levels are solved by BabyAI's own bot, from its package; the others, which have no instructions in BabyAI's
language, by `Explorer`.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from typing import Any, Protocol

import gymnasium
import numpy as np

from duetto.environments import naming
from duetto.environments.explorer import DONE, Explorer
from duetto.environments.making import separate
from duetto.environments.stepping import Stepper
from duetto.environments.trees import Tree
from duetto.errors import UsageError

EXPLORED = (
    *("KeyCorridor", "DoorKey", "UnlockPickup", "BlockedUnlockPickup", "ObstructedMaze", "MultiRoom", "LockedRoom"),
    *("FourRooms", "SimpleCrossing", "LavaCrossing", "LavaGap", "DistShift", "Empty"),
)
UNSOLVED = ("KeyInBox", "PutNextS5N2Carrying", "PutNextS6N3Carrying", "PutNextS7N4Carrying")  # by BabyAI's bot
MOST_SEARCHES = 1_000  # for one action; ten are many

_EXPLORED = re.compile(rf"(minigrid:)?MiniGrid-({'|'.join(EXPLORED)})(-?[A-Z0-9].*)?-v\d+")
_BABYAI = re.compile(rf"(minigrid:)?BabyAI-(?!{'|'.join(UNSOLVED)}).*-v\d+")


class _Player(Protocol):
    about: str

    def __init__(self, env: gymnasium.Env) -> None: ...
    def act(self) -> int: ...


def make_bot(environment: str, kwargs: Mapping[str, Any] | None = None) -> tuple[Stepper, Bot]:
    """Make one environment, as `separate` does, and the bot that plays in it.

    Raises:
        UsageError: No bot solves this environment.
    """
    if _EXPLORED.fullmatch(environment):
        player: type[_Player] = Explorer
    elif _BABYAI.fullmatch(environment):
        player = _BabyAIPlayer
    else:
        near = naming.nearest(environment, [f"MiniGrid-{name}" for name in EXPLORED])
        raise UsageError(
            f"No bot solves {environment}.{near} Bots solve BabyAI-* (without {', '.join(UNSOLVED)}) and MiniGrid's "
            f"{', '.join(EXPLORED)}. For others use a trained run, --expert runs/..., or play: --expert keyboard."
        )
    stepper = separate(environment, kwargs=kwargs)
    return stepper, Bot(stepper.environments, player)


class Bot:
    """A player in environments of this process; where it knows no way to go on, it does nothing until the end."""

    about: str

    def __init__(self, envs: list[gymnasium.Env], player: type[_Player]) -> None:
        self._envs, self._player, self.about = envs, player, player.about
        self._players: list[_Player] = []

    def __call__(self, obs: Tree, starts: np.ndarray) -> np.ndarray:
        """Return actions (N,) int64; `starts` (N,) says where an episode begins. Bots ignore `obs` and look inside."""
        if not self._players:
            self._players = [self._player(env) for env in self._envs]
        for row in np.flatnonzero(starts).tolist():
            self._players[row] = self._player(self._envs[row])
        return np.array([player.act() for player in self._players], np.int64)

    def rewarded(self, reward: np.ndarray, env: np.ndarray) -> None:
        """Ignore the rewards: bots need none."""


class _BabyAIPlayer:
    """BabyAI's bot. Its stack of plans can end in an assertion, in a box that it opened, or never."""

    about = "BabyAI's bot"

    def __init__(self, env: gymnasium.Env) -> None:
        module = importlib.import_module("minigrid.utils.baby_ai_bot")
        self._bot: Any = module.BabyAIBot(env)
        self._search, self._searches = self._bot._shortest_path, 0
        self._bot._shortest_path = self._search_a_little
        self._lost = False
        self._last: Any = None

    def act(self) -> int:
        """Return the next action; DONE once the bot has lost its way."""
        self._searches = 0
        if not self._lost:
            try:
                self._last = self._bot.replan(self._last)
            except Exception:  # whatever it is, the bot has lost its way, and the episode will not be a success
                self._lost = True
        return DONE if self._lost else int(self._last)

    def _search_a_little(self, *args: Any, **kwargs: Any) -> Any:
        """Search a path as the bot does, but raise RecursionError after MOST_SEARCHES for one action.

        In a plan that replaces itself for ever the bot would search for ever.
        """
        self._searches += 1
        if self._searches > MOST_SEARCHES:
            raise RecursionError("a plan without an end")
        return self._search(*args, **kwargs)
