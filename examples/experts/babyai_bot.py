"""BabyAI's own bot as an expert of `duetto demos record`, for all BabyAI-* tasks except KeyInBox and PutNext*Carrying.

    duetto demos record BabyAI-GoToLocal-v0 --expert examples/experts/babyai_bot.py:BabyAIBot \
        --only-successes --output demos/local

The bot reads the environment's state. Some of its plans fail or never end; the episode then fails.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from minigrid.utils.baby_ai_bot import BabyAIBot as Bot

from duetto.environments import VecEnv

DONE = 6
MOST_SEARCHES = 1_000  # for one action; a plan that works needs at most about ten


class BabyAIBot:
    """BabyAI's bot. If its plan fails, it does nothing until the episode ends."""

    about = "BabyAI's bot"

    def __init__(self, stepper: VecEnv) -> None:
        """Store the environment that the bot acts in."""
        self._env = stepper.environments[0]
        self._bot: Any = None

    def __call__(self, obs: Any, starts: np.ndarray) -> np.ndarray:
        """Return the action (1,) int64; `starts` (1,) is True at an episode's first step."""
        if self._bot is None or starts[0]:
            self._bot, self._lost, self._last = Bot(self._env), False, None
            self._search, self._bot._shortest_path = self._bot._shortest_path, self._search_a_little
        self._searches = 0
        if not self._lost:
            try:
                self._last = self._bot.replan(self._last)
            except Exception:  # the bot's plan fails, and the episode will not succeed
                self._lost = True
        return np.array([DONE if self._lost else int(self._last)])

    def rewarded(self, reward: np.ndarray, env: np.ndarray) -> None:
        """Ignore the rewards."""

    def _search_a_little(self, *args: Any, **kwargs: Any) -> Any:
        """Search a path as the bot does, but raise RecursionError after MOST_SEARCHES for one action.

        Without this limit, the bot would never end a plan that replaces itself.
        """
        self._searches += 1
        if self._searches > MOST_SEARCHES:
            raise RecursionError("a plan without an end")
        return self._search(*args, **kwargs)
