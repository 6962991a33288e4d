"""The bots of `examples/experts` solve what they say they solve, and the planner uses only what the agent has seen."""

from __future__ import annotations

import copy
import importlib
from typing import Any

import numpy as np
import pytest
from demo_cases import example

from duetto import environments
from duetto.demonstrations import RecordedGame, record
from duetto.errors import UsageError

# The hard-exploration tasks, of each of which 1,000 seeds were solved; and the other kinds of tasks.
TASKS = {
    "MiniGrid-KeyCorridorS3R3-v0": 12,
    "BabyAI-KeyCorridorS3R3-v0": 6,
    "MiniGrid-DoorKey-16x16-v0": 6,
    "MiniGrid-UnlockPickup-v0": 12,
    "MiniGrid-MultiRoom-N4-S5-v0": 8,
    "MiniGrid-ObstructedMaze-1Dlhb-v0": 12,
    "MiniGrid-ObstructedMaze-2Dlhb-v1": 8,
    "MiniGrid-BlockedUnlockPickup-v0": 6,
    "MiniGrid-LockedRoom-v0": 2,
    "MiniGrid-LavaCrossingS9N2-v0": 5,
    "BabyAI-GoToLocal-v0": 6,
    "BabyAI-PutNextLocal-v0": 6,
}


DONE = 6


def bot_of(environment: str) -> Any:
    babyai = environment.startswith("BabyAI")
    return example("babyai_bot").BabyAIBot if babyai else example("minigrid_planner").Planner


def played(environment: str, episodes: int, bot: Any = None, **options: Any) -> list[RecordedGame]:
    stepper = environments.make(environment, kwargs=options)
    return list(record((bot or bot_of(environment))(stepper), stepper, episodes, seed=10_000))


@pytest.mark.filterwarnings("ignore:.*is out of date")
@pytest.mark.parametrize(("environment", "episodes"), TASKS.items())
def test_every_episode_is_a_success(environment: str, episodes: int):
    games = played(environment, episodes)
    assert [game.score > 0 for game in games] == [True] * episodes


@pytest.mark.parametrize("seed", range(4))
def test_the_planner_knows_only_what_was_seen(seed: int):
    """Whatever lies in the other cells, it does the same."""
    stepper = environments.make("MiniGrid-KeyCorridorS3R3-v0")
    stepper.reset(seed)
    env = stepper.environments[0].unwrapped
    explorer = example("minigrid_planner").Explorer(env)
    lava = importlib.import_module("minigrid.core.world_object").Lava()
    for _ in range(20):
        blind = copy.copy(explorer)
        blind._env = copy.copy(env)
        blind._env.grid = copy.copy(env.grid)  # with the same things: they are told apart by which they are
        blind._env.grid.grid = list(env.grid.grid)
        explorer._look()
        for x, y in set(np.ndindex(env.width, env.height)) - explorer._seen:
            blind._env.grid.set(x, y, lava)
        blind._seen = explorer._seen.copy()
        action = explorer.act()
        assert blind.act() == action
        stepper.step(np.array([action]))


def test_it_gives_up_where_nothing_can_be_done():
    stepper = environments.make("MiniGrid-Empty-5x5-v0")
    stepper.reset(0)
    bot = bot_of("MiniGrid-Empty-5x5-v0")(stepper)
    grid = stepper.environments[0].unwrapped.grid
    wall = importlib.import_module("minigrid.core.world_object").Wall()
    for cell in ((2, 1), (1, 2), (2, 2)):
        grid.set(*cell, wall)
    actions = [int(bot(stepper.obs, stepper.starts)[0])]
    for _ in range(4):  # after it has turned around to look
        stepper.step(np.array(actions[-1:]))
        actions.append(int(bot(stepper.obs, stepper.starts)[0]))
    assert actions[-1] == DONE


@pytest.mark.parametrize("failure", ["an assertion", "an endless plan"])
def test_where_babyais_bot_loses_its_way_the_episode_is_no_success(monkeypatch: pytest.MonkeyPatch, failure: str):
    bots = importlib.import_module("minigrid.utils.baby_ai_bot")

    def replan(self: Any, action: Any = None) -> int:
        while failure == "an endless plan":
            self._shortest_path(lambda pos, cell: False)
        raise AssertionError("0nothing left to explore")

    monkeypatch.setattr(bots.BabyAIBot, "replan", replan)
    (game,) = played("BabyAI-GoToLocal-v0", 1, max_steps=12)
    assert (game.score, game.demonstrations[0].length, game.demonstrations[0].truncated) == (0.0, 12, True)
    assert set(game.demonstrations[0].action.tolist()) == {DONE}


def test_the_planner_refuses_what_is_not_minigrid():
    with pytest.raises(UsageError, match="CartPole-v1 is not a MiniGrid environment"):
        bot_of("MiniGrid-Empty-5x5-v0")(environments.make("CartPole-v1"))
