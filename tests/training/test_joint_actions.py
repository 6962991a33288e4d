"""Dict and Tuple action spaces: one distribution of independent parts, and the environment gets what it asked for."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from fake_run import same
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from gymnasium.vector import SyncVectorEnv
from small_runs import StopAt, checkpoints, small, train

import duetto
from duetto.environments import from_gymnasium, make
from duetto.errors import CheckpointError, UsageError
from duetto.functional.distributions import Categorical, DiagonalGaussian, MultiCategorical
from duetto.networks import action_distributions
from duetto.runs.agent import _structured

SPACE = Dict(
    {
        "move": Tuple((Discrete(3, start=-1), Box(np.array([0, -np.inf]), np.array([4, np.inf]), dtype=np.float64))),
        "buttons": MultiBinary(2),
        "aim": MultiDiscrete([2, 3]),
    }
)


class Cockpit(gymnasium.Env):
    """Checks what it gets; pays for the right choices, and for numbers near 1. `masked`: it forbids some."""

    observation_space = Box(-1, 1, (2,), np.float32)
    action_space: Any = SPACE

    def __init__(self, masked: bool = False) -> None:
        self.masked = masked

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return self.see()

    def see(self) -> Any:
        # aim 2 and 3, buttons 2 and 2, move 3: neither aim 1 of the second nor a move of 0
        mask = np.array([1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 0, 1])
        return np.array([self.time / 5, 0], np.float32), {"action_mask": mask} if self.masked else {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        move, numbers = action["move"]
        assert not self.masked or (action["aim"][1] != 1 and move != 0), action
        self.time += 1
        reward = float(move == 1) + float(action["buttons"].sum()) - float(abs(numbers - 1).sum())
        return *self.see()[:1], reward, False, self.time == 5, self.see()[1]


def test_the_parts_add_up(array: Any) -> None:
    """aim (2 + 3 logits), buttons (2 + 2), move/0 (3), move/1 (2 means, 2 log std), side by side in that order."""
    numbers = np.random.default_rng(0).normal(size=(4, 16)).astype(np.float32)
    action = np.array([[1, 2, 0, 1, 2, 0.5, -3]] * 4, np.float32)
    whole = action_distributions.distribution(from_gymnasium(SPACE), array(numbers.tolist()))
    parts = [
        (MultiCategorical((Categorical(numbers[:, :2]), Categorical(numbers[:, 2:5]))), action[:, :2].astype(int)),
        (MultiCategorical((Categorical(numbers[:, 5:7]), Categorical(numbers[:, 7:9]))), action[:, 2:4].astype(int)),
        (Categorical(numbers[:, 9:12]), action[:, 4].astype(int)),
        (DiagonalGaussian(numbers[:, 12:14], numbers[:, 14:]), action[:, 5:]),
    ]
    log_prob, entropy = whole.log_prob(array(action.tolist())), whole.entropy()
    np.testing.assert_allclose(log_prob, sum(part.log_prob(own) for part, own in parts), rtol=1e-5)
    np.testing.assert_allclose(entropy, sum(part.entropy() for part, _ in parts), rtol=1e-5)
    mode = np.asarray(whole.mode())
    assert mode.shape == (4, 7)
    np.testing.assert_allclose(mode[:, 5:], numbers[:, 12:14])
    assert mode[:, 4].tolist() == numbers[:, 9:12].argmax(axis=1).tolist()


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("vector", [False, True])
def test_an_environment_gets_what_its_space_says(masked: bool, vector: bool) -> None:
    one = partial(Cockpit, masked)
    stepper = make(SyncVectorEnv([one] * 3) if vector else one, **({} if vector else {"num_envs": 3}))
    stepper.reset(0)
    random = np.random.default_rng(0)
    for _ in range(30):
        actions = stepper.sample_actions(random)
        assert actions.shape == (3, 7)
        stepper.step(actions)
    for wrong in (0.5, 3, -1):
        with pytest.raises(UsageError, match="is not in Discrete"):
            stepper.step(np.array([[0, 0, 0, 0, wrong, 0, 0]] * 3))


@pytest.mark.parametrize("recurrent", ["none", "lstm"])
def test_it_learns_acts_and_resumes(recurrent: Any, tmp_path: Path) -> None:
    options = {"recurrent": recurrent, "recurrent_size": 8, "minibatches": 2}
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


class Notches(gymnasium.Env):
    """Whole numbers from 0 to 10 beside a choice; it keeps what it was given."""

    observation_space = Box(-1, 1, (1,), np.float32)
    action_space: Any = Dict({"dial": Box(0, 10, (3,), np.int64), "switch": Discrete(2)})

    def __init__(self) -> None:
        self.given: list[Any] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return np.ones(1, np.float32), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        self.given.append(action)
        return np.ones(1, np.float32), 0.0, False, len(self.given) == 4, {}


def test_whole_numbers_are_rounded_and_not_cut(tmp_path: Path) -> None:
    """An agent gives what its environment gets in evaluations: the nearest ones."""
    run = train(tmp_path, small("ppo"), Notches, steps=16, evaluate_every=0)
    env = Notches()
    run.evaluate(episodes=1, environment=lambda: env)
    agent = run.agent()
    raw = agent.policy(np.ones((1, 1), np.float32))[0, :3]
    expected = np.rint(5 + 5 * np.clip(raw.astype(np.float64), -1, 1))
    assert any(expected != np.floor(5 + 5 * raw))  # so this test can tell
    np.testing.assert_array_equal(env.given[0]["dial"], expected)
    np.testing.assert_array_equal(agent.act(np.ones(1, np.float32))["dial"], expected)


@pytest.mark.parametrize(
    "made", [None, [], ["dict", "aim"], ["array", "x", [-5], "int64"], ["dict", "aim", ["array", "aim", [2], "no"]], 7]
)
def test_what_a_stranger_says_of_actions_is_refused(made: Any) -> None:
    with pytest.raises(CheckpointError, match="The checkpoint"):
        _structured({"action_structure": made}, from_gymnasium(SPACE))


def test_every_part_is_learned(tmp_path: Path) -> None:
    run = train(
        tmp_path,
        small("ppo", rollout_steps=64, minibatches=4, epochs=8, learning_rate=0.01, initial_log_std=-1.0),
        Cockpit,
        steps=4096,
        num_envs=4,
        evaluate_every=0,
    )
    action = run.agent().act(np.zeros(2, np.float32))
    assert action["move"][0] == 1
    assert action["buttons"].tolist() == [1, 1]
    np.testing.assert_allclose(action["move"][1], [1, 1], atol=0.3)


def test_other_algorithms_say_what_they_want(tmp_path: Path) -> None:
    for name in ("dqn", "td3"):
        with pytest.raises(UsageError, match=rf"{name} needs a .* has Dict\(aim: .* Algorithms for it: .*ppo"):
            train(tmp_path, small(name), Cockpit)
