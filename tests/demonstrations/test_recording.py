"""What an expert did is what is recorded, episode by episode, in the order of the seeds."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from demo_cases import Diary, EverySecond, check_same, diary
from gymnasium.spaces import Box

from duetto.demonstrations import RecordedGame, record
from duetto.environments import VecEnv, make
from duetto.environments.engines import SyncEngine
from duetto.environments.learner_view import LearnerView
from duetto.errors import UsageError


def test_an_episode_by_value():
    # Seed 2: 3 steps, actions 1, 0, 1, rewards step * action.
    (game,) = record(EverySecond(), diary(), 1, seed=2)
    assert (game.seed, game.score, len(game.demonstrations)) == (2, 4.0, 1)
    demo = game.demonstrations[0]
    np.testing.assert_array_equal(demo.obs, np.array([[2, 0, 0], [2, 1, 1], [2, 2, 0], [2, 3, 1]], np.float32))
    np.testing.assert_array_equal(demo.action, np.array([1, 0, 1]))
    np.testing.assert_array_equal(demo.reward, np.array([1, 0, 3], np.float32))
    assert (demo.terminated, demo.truncated) == (True, False)
    assert demo.reward.dtype == np.float32
    assert demo.action.dtype == np.int64


def test_the_time_limit_is_a_truncation():
    (game,) = record(EverySecond(), diary(), 1, seed=1)
    assert (game.demonstrations[0].terminated, game.demonstrations[0].truncated) == (False, True)


def played(num_envs: int, episodes: int, **options: Any) -> list[RecordedGame]:
    return list(record(EverySecond(num_envs), diary(num_envs), episodes, seed=3, **options))


@pytest.mark.parametrize("num_envs", [1, 2, 3, 7, 12])
@pytest.mark.parametrize("keep", [lambda score: True, lambda score: score > 1], ids=["all", "some"])
def test_how_many_run_side_by_side_does_not_matter(num_envs: int, keep: Any):
    alone, beside = played(1, 9, keep=keep), played(num_envs, 9, keep=keep)
    assert [game.seed for game in beside] == [game.seed for game in alone]
    for one, other in zip(alone, beside, strict=True):
        assert one.score == other.score
        check_same(other.demonstrations[0], one.demonstrations[0])


def test_left_out_episodes_are_replaced_by_later_ones():
    # Scores by seed % 4: 1, 1, 4, 4.
    assert [game.seed for game in played(3, 5)] == [3, 4, 5, 6, 7]
    assert [game.seed for game in played(3, 5, keep=lambda score: score > 1)] == [3, 6, 7, 10, 11]


@pytest.mark.parametrize("least", [4, 5])
def test_an_expert_that_never_succeeds_is_none(least: int):
    def keep(score: float) -> bool:
        return score >= least

    if least == 4:  # every second episode
        assert len(played(2, 30, keep=keep)) == 30
    else:
        with pytest.raises(UsageError, match=r"Only 0 of 20 episodes.*better expert"):
            played(2, 30, keep=keep)


def test_the_expert_hears_its_rewards():
    expert = EverySecond()
    games = list(record(expert, diary(), 3, seed=1))
    assert expert.rewards == [reward for game in games for reward in game.demonstrations[0].reward.tolist()]


def test_a_lost_life_ends_a_demonstration_but_not_the_game():
    # Seed 3: 4 steps, a life lost after the second; actions 1, 0, 1, 0; rewards 1, 0, 3, 0, of which the sign is left.
    stepper = VecEnv(LearnerView(SyncEngine([Diary(lives=True)]), episodic_life=True, clip_rewards=True))
    first, second = record(EverySecond(), stepper, 2, seed=3)
    assert (first.seed, second.seed) == (3, 4)
    assert first.score == 4.0
    one, other = first.demonstrations
    assert (one.terminated, one.truncated, other.terminated, other.truncated) == (True, False, False, True)
    np.testing.assert_array_equal(one.obs[:, 1], [0, 1, 2])
    np.testing.assert_array_equal(other.obs[:, 1], [2, 3, 4])
    np.testing.assert_array_equal(np.concatenate([one.reward, other.reward]), [1, 0, 1, 0])


class Levers(gymnasium.Env):
    """One step each. It keeps what it was given."""

    observation_space = Box(-1, 1, (1,), np.float32)

    def __init__(self, action_space: Any) -> None:
        self.action_space, self.given = action_space, []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.given.append(action)
        return np.zeros(1, np.float32), 0.0, True, False, {}


class Beyond:
    """Wants more than there is."""

    def __init__(self, action: Any) -> None:
        self.action = np.float32([action])

    def __call__(self, obs: Any, starts: np.ndarray) -> np.ndarray:
        return self.action

    def rewarded(self, reward: np.ndarray, env: np.ndarray) -> None:
        """It does not care."""


NUMBERS = Box(np.array([-2, 0, -np.inf], np.float32), np.array([2, np.inf, np.inf], np.float32))


def test_what_is_beyond_a_bound_is_recorded_as_what_was_done():
    env = Levers(NUMBERS)
    (game,) = record(Beyond([3, -5, -5]), make(lambda: env), 1, seed=0)
    # bounds -2 and 2; one bound, 0, which is -1 to an agent; none
    np.testing.assert_array_equal(game.demonstrations[0].action, np.float32([[1, -1, -5]]))
    np.testing.assert_array_equal(env.given[0], [2, 0, -5])


def test_no_episodes_are_a_mistake():
    with pytest.raises(UsageError, match="at least 1"):
        played(1, 0)
