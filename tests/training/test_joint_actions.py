"""Dict and Tuple action spaces: one distribution with independent parts."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from fake_run import same
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from small_runs import StopAt, checkpoints, small, train
from vector_envs import Whole

import duetto
from duetto.environments import make
from duetto.errors import UsageError

SPACE = Dict(
    {
        "move": Tuple((Discrete(3, start=-1), Box(np.array([0, -np.inf]), np.array([4, np.inf]), dtype=np.float64))),
        "buttons": MultiBinary(2),
        "aim": MultiDiscrete([2, 3]),
    }
)


class Cockpit(gymnasium.Env):
    """Asserts that actions are in its space and not masked. Rewards some choices, and numbers near 1."""

    observation_space = Box(-1, 1, (2,), np.float32)
    action_space: Any = SPACE

    def __init__(self, masked: bool = False) -> None:
        self.masked = masked

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return self.see()

    def see(self) -> Any:
        # sizes: aim 2 and 3, buttons 2 and 2, move 3; forbids aim[1] == 1 and move == 0
        mask = np.array([1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 0, 1])
        return np.array([self.time / 5, 0], np.float32), {"action_mask": mask} if self.masked else {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        move, numbers = action["move"]
        assert not self.masked or (action["aim"][1] != 1 and move != 0), action
        self.time += 1
        reward = float(move == 1) + float(action["buttons"].sum()) - float(abs(numbers - 1).sum())
        return *self.see()[:1], reward, False, self.time == 5, self.see()[1]


@pytest.mark.parametrize("vector", [False, True])
def test_environment_receives_actions_in_its_space(vector: bool) -> None:
    one = partial(Cockpit, masked=vector)
    stepper = make(Whole([one] * 3) if vector else one, **({} if vector else {"num_envs": 3}))
    stepper.reset(0)
    random = np.random.default_rng(0)
    for _ in range(30):
        actions = stepper.sample_actions(random)
        assert actions.shape == (3, 7)
        stepper.step(actions)
    for wrong in (0.5, 3, -1):
        with pytest.raises(UsageError, match="is not in Discrete"):
            stepper.step(np.array([[0, 0, 0, 0, wrong, 0, 0]] * 3))


def test_recurrent_ppo_with_joint_actions_acts_and_resumes(tmp_path: Path) -> None:
    options = {"recurrent": "lstm", "recurrent_size": 8, "minibatches": 2}
    how: dict[str, Any] = {"steps": 160, "num_envs": 2, "evaluate_every": 0}
    environment = partial(Cockpit, True)
    whole = train(tmp_path / "whole", small("ppo", **options), environment, **how)
    parts = train(tmp_path / "parts", small("ppo", **options), environment, callbacks=[StopAt(90)], **how)
    duetto.Run(parts.path, environment).resume()
    one, other = (checkpoints(run).load_latest().state for run in (whole, parts))
    for part in ("learner", "memory", "collector", "stepper"):
        assert same(one[part], other[part]), part
    agent, env = whole.agent(), environment()
    obs, info = env.reset(seed=0)
    action = agent.act(obs, action_mask=info["action_mask"])
    assert SPACE.contains(action)
    env.step(action)
    agent.reset()
    several = agent.act_batch([obs] * 3, action_mask=[info["action_mask"]] * 3)
    assert several["move"][1].shape == (3, 2)
    assert several["buttons"].dtype == np.int8


def test_algorithms_without_joint_actions_name_their_required_spaces(tmp_path: Path) -> None:
    for name in ("dqn", "td3"):
        with pytest.raises(UsageError, match=rf"{name} needs a .* has Dict\(aim: .* Algorithms for it: .*ppo"):
            train(tmp_path, small(name), Cockpit)
