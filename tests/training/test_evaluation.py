"""Evaluation: whole episodes from fixed initial states, that leave training as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from line_environment import Line, Parts
from small_runs import BRIEF, differences, outcome, small, train

from duetto import environments
from duetto.training.evaluation import Evaluation, evaluate, watch
from duetto.training.session import Session


class Lengths(Line):
    """Episodes of 3 to 30 steps, as its seed says; the reward of each step is the seed's number too."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        obs, info = super().reset(seed=seed, options=options)
        self.length = int(self.np_random.integers(3, 30))
        self.number = float(self.np_random.normal())
        return obs, info

    def step(self, action: np.ndarray) -> Any:
        obs, _, *rest = super().step(action)
        return obs, self.number, *rest


def still(obs: np.ndarray) -> np.ndarray:
    return np.zeros((len(obs), 2), np.float32)


def expected(seed: int, episodes: int) -> Evaluation:
    """By Gymnasium's own loop: episode k starts from seed + 100 + k."""
    returns, lengths = [], []
    for k in range(episodes):
        environment = Lengths()
        environment.reset(seed=seed + 100 + k)
        steps = [environment.step(np.array([1, 2.25], np.float32)) for _ in range(environment.length)]
        assert steps[-1][3]
        returns.append(sum(reward for _, reward, *_ in steps))
        lengths.append(len(steps))
    return Evaluation(np.array(returns), np.array(lengths))


@pytest.mark.parametrize("num_envs", [1, 2, 4, 10])
def test_each_episode_has_its_own_seed_however_many_run_side_by_side(num_envs: int):
    stepper = environments.make(Lengths, num_envs=num_envs)
    result, wanted = evaluate(still, stepper, 10, seed=7), expected(7, 10)
    assert len(set(wanted.lengths)) > 5
    np.testing.assert_array_equal(result.lengths, wanted.lengths)
    np.testing.assert_allclose(result.returns, wanted.returns, rtol=1e-12)


@pytest.mark.parametrize("name", ["HopperBulletEnv-v0", "AntBulletEnv-v0"])
def test_in_bullet_the_first_is_like_the_others(name: str):
    """Bullet's first reset builds a world, and the later ones restore it, which is not quite the same."""
    stepper = environments.make(name, num_envs=2)

    def swing(obs: np.ndarray) -> np.ndarray:
        return np.sin(9 * obs[:, : stepper.action_space.size])

    first, second = (evaluate(swing, stepper, 3, seed=0) for _ in range(2))
    np.testing.assert_array_equal(first.returns, second.returns)


def test_it_repeats_whatever_was_before():
    stepper = environments.make(Lengths, num_envs=3)
    first = evaluate(still, stepper, 5, seed=1)
    evaluate(still, stepper, 4, seed=2)
    second = evaluate(still, stepper, 5, seed=1)
    np.testing.assert_array_equal(first.returns, second.returns)


def test_more_environments_than_episodes():
    result = evaluate(still, environments.make(Lengths, num_envs=4), 2, seed=7)
    np.testing.assert_array_equal(result.lengths, expected(7, 2).lengths)


def test_what_it_says():
    result = Evaluation(np.array([1.0, 2.0, 6.0]), np.array([3, 3, 4]))
    assert result.mean_return == 3.0
    assert result.std_return == pytest.approx(np.sqrt((4 + 1 + 9) / 3))
    assert str(result) == "3.0 ± 2.2 over 3 episodes"


def test_a_real_policy_on_one_or_several(tmp_path: Path):
    run = train(tmp_path, steps=60, evaluate_every=0)
    policy = run.agent().policy
    one, four = (evaluate(policy, environments.make("Pendulum-v1", num_envs=n), 6, 0) for n in (1, 4))
    np.testing.assert_allclose(one.returns, four.returns, rtol=1e-4)


@pytest.mark.parametrize("environment", ["Pendulum-v1", Parts])
def test_it_changes_nothing_in_training(tmp_path: Path, environment: Any):
    """Normalisation, exploration, episodes that are under way: all as if nobody had looked."""
    algorithm = small(normalize_observations="collected", exploration="ou", prioritized=True)
    with_it, without = (outcome(train(tmp_path, algorithm, environment, evaluate_every=every)) for every in (35, 0))
    assert len(with_it["evaluations"]) == 7  # 0, 35 .. 175, and 200, the end
    assert with_it["state"]["session"].pop("best") is not None
    assert without["state"]["session"].pop("best") is None
    for part in ("state", "memory", "metrics"):
        assert differences(with_it[part], without[part]) == []


def test_neither_exploration_nor_statistics(tmp_path: Path):
    """The evaluated policy is the actor's mean action, on observations scaled by statistics that stand still."""
    checks: list[int] = []

    def check(session: Session) -> None:
        if session.step % 40 == 0:
            before = session.normalizer.state_dict()
            obs = session.stepper.obs
            first, second = session.policy(obs), session.policy(obs)
            session.evaluate()
            np.testing.assert_array_equal(first, second)
            np.testing.assert_array_equal(first, session.learner.act(session.normalizer(obs)))
            assert differences(before, session.normalizer.state_dict()) == []
            checks.append(session.step)

    train(tmp_path, small(normalize_observations="collected", exploration_noise=1.0), callbacks=[check])
    assert checks == [40, 80, 120, 160, 200]


def test_it_is_at_fixed_steps_and_step_0_is_one(tmp_path: Path):
    run = train(tmp_path, steps=100, evaluate_every=30, evaluation_episodes=3, environment_options={})
    rows = run.evaluations()
    assert [row["step"] for row in rows] == [0, 30, 60, 90, 100]
    assert {row["episodes"] for row in rows} == {3}
    for row in rows:
        assert row["min_return"] <= row["mean_return"] <= row["max_return"]
        assert row["mean_length"] == 200
    untrained = train(
        tmp_path, small(learning_starts=10**6), steps=1, evaluation_episodes=3, environment_options={}
    ).evaluations()
    assert untrained[0] == rows[0] | {"seconds": untrained[0]["seconds"]}


def test_watching_shows_every_step_once():
    frames: list[np.ndarray] = []
    stepper = environments.make(Line, render_mode="rgb_array")
    episode = watch(still, stepper, 0, lambda frame, _: frames.append(frame))
    assert (episode.length, [int(frame[0, 0, 0]) for frame in frames]) == (10, list(range(10)))


def test_an_instance_is_evaluated_on_a_copy(tmp_path: Path):
    environment = gymnasium.make("Pendulum-v1", **BRIEF)
    run = train(tmp_path, environment=environment, steps=60)
    by_id = train(tmp_path, steps=60)
    assert differences(outcome(run)["memory"], outcome(by_id)["memory"]) == []
