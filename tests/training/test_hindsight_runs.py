"""Runs with hindsight experience replay (HER): refused environments and options, discrete actions."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from goal_environment import NEAR, GoalLine, Informed, Mute
from gymnasium.spaces import Discrete
from gymnasium.wrappers import TransformReward
from small_runs import small, train

import duetto
from duetto import environments
from duetto.errors import EnvironmentFailedError, UsageError


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ("Pendulum-v1", "hindsight needs achieved_goal and desired_goal in observations"),
        (Mute, "has no compute_reward"),
    ],
)
def test_her_refuses_environments_without_goals_before_writing(tmp_path: Path, environment: Any, sentence: str):
    with pytest.raises(UsageError, match=sentence):
        train(tmp_path, small(hindsight="future"), environment)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        (
            partial(GoalLine, bonus=2.0),
            r"compute_reward returns (-1, but step returned 1|0, but step returned 2)\. They differ in",
        ),
        (lambda: TransformReward(GoalLine(), lambda reward: 3 * reward - 1), r"but step returned -(4|1)\."),
        (Informed, "compute_reward, with an empty info, raised KeyError: 'reward'"),
    ],
)
def test_her_reports_rewards_not_computable_from_goals(tmp_path: Path, environment: Any, sentence: str):
    with pytest.raises(EnvironmentFailedError, match=sentence):
        train(tmp_path, small(hindsight="future", batch_size=64), environment)


def test_goal_env_computes_rewards_and_terminations():
    """GoalLine's `compute_reward` takes batches, but its `compute_terminated` takes one pair of goals."""
    goals = environments.GoalEnv(environments.make(GoalLine))
    achieved, desired = np.float32([[0], [1], [2]]), np.float32([[0], [0], [2 + 0.9 * NEAR]])
    np.testing.assert_array_equal(goals.reward(achieved, desired), np.float32([0, -1, 0]))
    np.testing.assert_array_equal(goals.terminated(achieved, desired), [True, False, True])
    goals.close()


def test_her_supports_discrete_actions(tmp_path: Path):
    class DiscreteGoalLine(GoalLine):
        def __init__(self) -> None:
            super().__init__()
            self.action_space: Any = Discrete(2)

        def step(self, action: Any) -> Any:
            return super().step(np.float32([2 * action - 1]))

    run = train(tmp_path, small("discretesac", hindsight="future"), DiscreteGoalLine, steps=60)
    agent = duetto.load(run.path)
    assert agent.act(DiscreteGoalLine().reset(seed=1)[0]) in (0, 1)
