"""Runs with hindsight: who may have it, what networks see, and that a killed one continues in the same bits."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from goal_environment import NEAR, GoalLine, Informed, Mute
from gymnasium.spaces import Discrete
from gymnasium.wrappers import TransformReward
from small_runs import StopAt, assert_same, small, train

import duetto
from duetto import environments
from duetto.errors import EnvironmentFailedError, UsageError
from duetto.networks.spaces import Box, Dict
from duetto.runs.run import Run

GOAL = Box((1,), "float32", (-10.0,), (10.0,))
SPACE = Dict((("achieved_goal", GOAL), ("desired_goal", GOAL), ("observation", GOAL)))
ACTION = Box((1,), "float32", (-1.0,), (1.0,))


# ------------------------------------------------------------------------------------------------ who may have it
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"n_step": 3}, "n_step is 3; with hindsight it must be 1"),
        ({"recurrent": "lstm"}, "hindsight is for transitions; recurrent layers learn from sequences."),
        ({"hindsight": "past"}, "hindsight is 'past'; it must be one of none, future, final, episode."),
        ({"hindsight_share": 1.5}, "hindsight_share is 1.5; it must be at least 0 and at most 1."),
    ],
)
def test_what_does_not_go_together(options: dict[str, Any], sentence: str):
    with pytest.raises(UsageError) as refusal:
        duetto.TD3(**{"hindsight": "future"} | options)
    assert str(refusal.value).startswith(sentence)


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ("Pendulum-v1", "hindsight needs achieved_goal and desired_goal in observations"),
        (Mute, "has no compute_reward"),
    ],
)
def test_environments_without_goals_are_refused_before_anything_is_written(
    tmp_path: Path, environment: Any, sentence: str
):
    with pytest.raises(UsageError, match=sentence):
        train(tmp_path, small(hindsight="future"), environment)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        (
            partial(GoalLine, bonus=2.0),
            r"compute_reward gives (-1 where the step gave 1|0 where the step gave 2), and so in",
        ),
        (lambda: TransformReward(GoalLine(), lambda reward: 3 * reward - 1), r"where the step gave -(4|1), and so in"),
        (Informed, "compute_reward, with an empty info, raised KeyError: 'reward'"),
    ],
)
def test_rewards_that_goals_do_not_explain_end_the_run(tmp_path: Path, environment: Any, sentence: str):
    with pytest.raises(EnvironmentFailedError, match=sentence):
        train(tmp_path, small(hindsight="future", batch_size=64), environment)


# ------------------------------------------------------------------------------------------------ what is seen


def test_the_goals_of_an_environment():
    """Its reward takes batches; its compute_terminated one pair, and would be wrong for all if it got them at once."""
    goals = environments.GoalEnv(environments.make(GoalLine))
    achieved, desired = np.float32([[0], [1], [2]]), np.float32([[0], [0], [2 + 0.9 * NEAR]])
    np.testing.assert_array_equal(goals.reward(achieved, desired), np.float32([0, -1, 0]))
    np.testing.assert_array_equal(goals.terminated(achieved, desired), [True, False, True])
    goals.close()


# ------------------------------------------------------------------------------------------------ exactly the same


CASES = [
    ("torch", "ddpg", {"hindsight": "episode"}),
    ("torch", "sac", {"hindsight": "final"}),
    ("jax", "td3", {"hindsight": "future"}),
]


@pytest.mark.parametrize(("backend", "name", "options"), CASES)
def test_what_is_interrupted_ends_as_what_is_not(tmp_path: Path, backend: str, name: str, options: dict[str, Any]):
    """Stopped in the middle of episodes, with rings that went round: two environments, 60 rows each."""
    how: dict[str, Any] = {"environment": GoalLine, "backend": backend, "num_envs": 2, "evaluate_every": 0}
    algorithm = small(name, **options)
    whole = train(tmp_path, algorithm, name="whole", **how)
    parts = train(tmp_path, algorithm, name="parts", callbacks=[StopAt(150)], **how)
    assert_same(whole, resumed(parts))


def resumed(run: Run) -> Run:
    return Run(run.path, environment=GoalLine).resume()


def test_choices_have_hindsight_too(tmp_path: Path):
    class Steps(GoalLine):
        def __init__(self) -> None:
            super().__init__()
            self.action_space: Any = Discrete(2)

        def step(self, action: Any) -> Any:
            return super().step(np.float32([2 * action - 1]))

    run = train(tmp_path, duetto.DiscreteSAC(hindsight="future", hidden=(16, 16), **SMALL_STEPS), Steps, steps=60)
    agent = duetto.load(run.path)
    assert agent.act(Steps().reset(seed=1)[0]) in (0, 1)


SMALL_STEPS: dict[str, Any] = {"batch_size": 16, "random_steps": 30, "learning_starts": 30, "replay_capacity": 120}
