"""The bots of `examples/experts` solve their tasks, and the planner uses only what the agent has seen."""

from __future__ import annotations

import copy
import importlib
from typing import Any

import numpy as np
import pytest
from demo_cases import example

from duetto import environments
from duetto.demonstrations import record

# The number of episodes of each task.
TASKS = {
    "MiniGrid-KeyCorridorS3R3-v0": 12,
    "BabyAI-KeyCorridorS3R3-v0": 6,
    "MiniGrid-DoorKey-16x16-v0": 6,
    "MiniGrid-MultiRoom-N4-S5-v0": 8,
    "MiniGrid-ObstructedMaze-2Dlhb-v1": 8,
    "MiniGrid-LavaCrossingS9N2-v0": 5,
    "BabyAI-GoToLocal-v0": 6,
}


def bot_of(environment: str) -> Any:
    babyai = environment.startswith("BabyAI")
    return example("babyai_bot").BabyAIBot if babyai else example("minigrid_planner").Planner


@pytest.mark.filterwarnings("ignore:.*is out of date")
@pytest.mark.parametrize(("environment", "episodes"), TASKS.items())
def test_example_bot_solves_every_episode(environment: str, episodes: int):
    stepper = environments.make(environment)
    games = record(bot_of(environment)(stepper), stepper, episodes, seed=10_000)
    assert [game.score > 0 for game in games] == [True] * episodes


@pytest.mark.parametrize("seed", range(4))
def test_planner_ignores_unseen_cells(seed: int):
    """Lava in every unseen cell does not change its actions."""
    stepper = environments.make("MiniGrid-KeyCorridorS3R3-v0")
    stepper.reset(seed)
    env = stepper.environments[0].unwrapped
    explorer = example("minigrid_planner").Explorer(env)
    lava = importlib.import_module("minigrid.core.world_object").Lava()
    for _ in range(20):
        blind = copy.copy(explorer)
        blind._env = copy.copy(env)
        blind._env.grid = copy.copy(env.grid)  # a shallow copy, because objects are compared by identity
        blind._env.grid.grid = list(env.grid.grid)
        explorer._look()
        for x, y in set(np.ndindex(env.width, env.height)) - explorer._seen:
            blind._env.grid.set(x, y, lava)
        blind._seen = explorer._seen.copy()
        action = explorer.act()
        assert blind.act() == action
        stepper.step(np.array([action]))
