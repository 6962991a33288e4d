"""Recording an expert: one demonstration per episode, in the order of the seeds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from demo_cases import AlternatingExpert, Diary, assert_same_episode, diary

from duetto.demonstrations import RecordedGame, record
from duetto.environments import VecEnv, make
from duetto.environments.atari import AtariOptions
from duetto.environments.engines import SyncEngine
from duetto.environments.learner_view import LearnerView
from duetto.errors import UsageError


class OutOfBoundsExpert:
    """Chooses an action beyond its bound."""

    def __call__(self, obs: Any, starts: np.ndarray) -> np.ndarray:
        return np.float32([[3.0]])

    def rewarded(self, reward: np.ndarray, env: np.ndarray) -> None:
        """Ignore the rewards."""


def test_out_of_bounds_action_is_recorded_clipped():
    (game,) = record(OutOfBoundsExpert(), make("Pendulum-v1", kwargs={"max_episode_steps": 3}), 1, seed=0)
    np.testing.assert_array_equal(game.demonstrations[0].action, np.ones((3, 1), np.float32))


def test_recorded_episode_by_hand():
    # Seed 2: 3 steps, actions 1, 0, 1, rewards step * action.
    (game,) = record(AlternatingExpert(), diary(), 1, seed=2)
    assert (game.seed, game.score, len(game.demonstrations)) == (2, 4.0, 1)
    demo = game.demonstrations[0]
    np.testing.assert_array_equal(demo.obs, np.array([[2, 0, 0], [2, 1, 1], [2, 2, 0], [2, 3, 1]], np.float32))
    np.testing.assert_array_equal(demo.action, np.array([1, 0, 1]))
    np.testing.assert_array_equal(demo.reward, np.array([1, 0, 3], np.float32))
    assert (demo.terminated, demo.truncated) == (True, False)
    assert demo.reward.dtype == np.float32
    assert demo.action.dtype == np.int64


def record_games(num_envs: int, episodes: int, **options: Any) -> list[RecordedGame]:
    return list(record(AlternatingExpert(num_envs), diary(num_envs), episodes, seed=3, **options))


@pytest.mark.parametrize("num_envs", [1, 2, 3, 7, 12])
@pytest.mark.parametrize("keep", [lambda score: True, lambda score: score > 1], ids=["all", "some"])
def test_recording_does_not_depend_on_num_envs(num_envs: int, keep: Any):
    alone, beside = record_games(1, 9, keep=keep), record_games(num_envs, 9, keep=keep)
    assert [game.seed for game in beside] == [game.seed for game in alone]
    for one, other in zip(alone, beside, strict=True):
        assert one.score == other.score
        assert_same_episode(other.demonstrations[0], one.demonstrations[0])


def test_rejected_episodes_are_replaced_by_later_seeds():
    # Scores by seed % 4: 1, 1, 4, 4.
    assert [game.seed for game in record_games(3, 5)] == [3, 4, 5, 6, 7]
    assert [game.seed for game in record_games(3, 5, keep=lambda score: score > 1)] == [3, 6, 7, 10, 11]


def test_expert_that_never_succeeds_is_refused():
    assert len(record_games(2, 30, keep=lambda score: score >= 4)) == 30  # every second episode
    with pytest.raises(UsageError, match=r"Only 0 of 20 episodes.*better expert"):
        record_games(2, 30, keep=lambda score: score >= 5)


def test_expert_receives_its_rewards():
    expert = AlternatingExpert()
    games = list(record(expert, diary(), 3, seed=1))
    assert expert.rewards == [reward for game in games for reward in game.demonstrations[0].reward.tolist()]


def test_lost_life_ends_a_demonstration_but_not_the_game():
    # Seed 3: 4 steps, a life lost after the second; actions 1, 0, 1, 0; rewards 1, 0, 3, 0, clipped to their sign.
    stepper = VecEnv(
        LearnerView(SyncEngine([Diary(lives=True)]), AtariOptions(episodic_life=True, clip_rewards=True), True, False)
    )
    first, second = record(AlternatingExpert(), stepper, 2, seed=3)
    assert (first.seed, second.seed) == (3, 4)
    assert first.score == 4.0
    one, other = first.demonstrations
    assert (one.terminated, one.truncated, other.terminated, other.truncated) == (True, False, False, True)
    np.testing.assert_array_equal(one.obs[:, 1], [0, 1, 2])
    np.testing.assert_array_equal(other.obs[:, 1], [2, 3, 4])
    np.testing.assert_array_equal(np.concatenate([one.reward, other.reward]), [1, 0, 1, 0])
