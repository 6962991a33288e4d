"""Rewards divided by the running std of their discounted sums: which numbers enter it, and what is saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from policy_environments import Wander
from small_runs import small, train

from duetto.algorithms.base import Batch, OneStep
from duetto.storage.tree_codec import decode_tree, encode_tree
from duetto.training.normalizer import RewardScaler
from duetto.training.trainer import Trainer

NO, YES = np.zeros(1, bool), np.ones(1, bool)
ONLY = np.zeros(1, np.int64)


def one(scaler: RewardScaler, reward: float, done: np.ndarray = NO) -> float:
    """The scaled reward of a single environment."""
    scaled = scaler(np.array([reward], np.float32), ONLY, done)
    assert (scaled.dtype, scaled.shape) == (np.float32, (1,))
    return float(scaled[0])


def test_by_hand():
    """γ .5, rewards 1, 2 (the episode ends), 3: discounted sums 1, 2.5, 3. From (mean, variance, count) = (0, 1, 1):

    1:    (1 + 1² · 1/2) / 2 = .75;               1 / √.75 = 1.1547005
    2.5:  (1.5 + 2² · 2/3) / 3 = 1.3888889;       2 / √1.3888889 = 1.6970563
    3:    (4.1666667 + 1.8333333² · 3/4) / 4 = 1.671875;  3 / √1.671875 = 2.3201669
    """
    scaler = RewardScaler(1, 0.5)
    found = [one(scaler, 1), one(scaler, 2, YES), one(scaler, 3)]
    np.testing.assert_allclose(found, [1.1547005, 1.6970563, 2.3201669], rtol=1e-6)


def test_gymnasiums_prior_gives_gymnasiums_rewards():
    """From the first one on, which is 1 / 0.01 where its first sum is its mean: clipped to 10."""

    class Paid(gymnasium.Env):
        observation_space, action_space = gymnasium.spaces.Box(0, 1, (1,)), gymnasium.spaces.Discrete(2)
        rewards = iter([1.0, 2.0, 3.0, -1.0, 0.5])

        def step(self, action: Any) -> Any:
            return np.zeros(1, np.float32), next(self.rewards), False, False, {}

    theirs = gymnasium.wrappers.NormalizeReward(Paid(), gamma=0.5)
    expected = [np.clip(theirs.step(0)[1], -10, 10) for _ in range(5)]
    scaler = RewardScaler(1, 0.5, prior=1e-4)
    np.testing.assert_allclose([one(scaler, r) for r in (1, 2, 3, -1, 0.5)], expected, rtol=1e-6)
    assert one(RewardScaler(1, 0.5), 1) < 1.2 < 10 == expected[0]


def test_the_sums_begin_again_where_an_episode_ended():
    """Without the end the third sum would be 4.25."""
    ended, went_on = RewardScaler(1, 0.5), RewardScaler(1, 0.5)
    for scaler, done in ((ended, YES), (went_on, NO)):
        one(scaler, 1)
        one(scaler, 2, done)
    assert ended.state_dict()["sums"].tolist() == [0.0]
    assert went_on.state_dict()["sums"].tolist() == [2.5]
    assert one(ended, 3) > one(went_on, 3)
    went_on.interrupt()
    assert went_on.state_dict()["sums"].tolist() == [0.0]


def test_it_goes_on_from_its_state():
    ours, again = RewardScaler(1, 0.9), RewardScaler(1, 0.9)
    for reward in (1, -2, 3):
        one(ours, reward)
    again.load_state_dict(decode_tree("state", encode_tree("state", ours.state_dict())))
    for reward in (5, 0.5):
        assert one(ours, reward) == one(again, reward)
    assert encode_tree("state", ours.state_dict()) == encode_tree("state", again.state_dict())


# ---------------------------------------------------------------------------------------- of sampled batches
def sampled(*rewards: tuple[float, bool], discount: float = 0.5, bound: float = 5.0) -> RewardScaler:
    """A scaler for sampled batches that has seen these rewards and ends of episodes."""
    scaler = RewardScaler(1, discount, prior=1e-4, sampled=True, bound=bound)
    for reward, done in rewards:
        assert one(scaler, reward, np.array([done])) == reward  # what the buffer stores
    return scaler


def of_batch(scaler: RewardScaler, reward: float) -> float:
    ones = np.ones(1, np.float32)
    single = OneStep(2 * reward * ones, ones, ones)
    batch = scaler.batch(Batch(ones, ones, reward * ones, ones, ones, ones, one_step=single))
    assert isinstance(batch, Batch)
    assert batch.one_step is not None
    assert (batch.reward.dtype, batch.one_step.reward.dtype) == (np.float32, np.float32)
    assert batch.one_step.reward[0] == pytest.approx(2 * batch.reward[0])
    return float(batch.reward[0])


def test_sampled_rewards_are_divided_by_the_std_of_the_sums():
    """γ .5: sums 1, 2.5, -2.75 (the episode ends), 1: mean .4375, variance 3.7617, √ = 1.9395 > 2.75 / 5.

    In FlashSAC's code the sums are 1, 2.5, -4, -1, since a sum ends a step early, and 1 becomes .4109.
    """
    scaler = sampled((1, False), (2, False), (-4, True), (1, False))
    assert of_batch(scaler, 1) == pytest.approx(1 / 1.9395, rel=1e-4)
    assert of_batch(scaler, -7) == pytest.approx(-7 / 1.9395, rel=1e-4)  # not clipped
    assert scaler.largest == 2.75


def test_sampled_rewards_are_bounded_by_the_largest_sum():
    """γ .5: sums 10, 15, 17.5 of variance 9.7222, √ = 3.118 < 17.5 / 5."""
    rewards = [(10.0, False)] * 3
    assert of_batch(sampled(*rewards), 7) == pytest.approx(2.0)
    assert of_batch(sampled(*rewards, bound=0), 7) == pytest.approx(7 / 3.118, rel=1e-3)


# ---------------------------------------------------------------------------------------------------- in a run
def rewards(parent: Path, **hyperparameters: Any) -> tuple[np.ndarray, list[float]]:
    """What the memory holds of the first rollout before it is learned from, and the training returns."""
    held: list[np.ndarray] = []

    def look(trainer: Trainer) -> None:
        if trainer.step == 30:
            held.append(trainer.memory.state_dict()["arrays"]["reward"])

    run = train(parent, small("ppo", **hyperparameters), Wander, num_envs=2, steps=60, log_every=20, callbacks=[look])
    return held[0], [line["train/return"] for line in run.metrics()]


def test_the_memory_holds_scaled_rewards_and_the_log_true_ones(tmp_path: Path):
    """Pitfall 27. The first rollout is collected alike, so scaling is all the difference."""
    raw, returns = rewards(tmp_path / "raw")
    scaled, same = rewards(tmp_path / "scaled", normalize_rewards=True)
    np.testing.assert_array_equal(np.sign(raw), np.sign(scaled))
    assert not np.allclose(raw, scaled, rtol=0.05)
    assert returns[0] == same[0]


@pytest.mark.parametrize("name", ["sac", "td3", "crossq"])
def test_batches_are_scaled_and_the_buffer_is_not(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch):
    """Each batch by the statistics of its step, which random actions change, too."""
    scaled: list[np.ndarray] = []
    learned: list[np.ndarray] = []

    def watch(trainer: Trainer) -> None:
        scaler, update_each = trainer.collector.rewards, trainer.learner.update_each
        assert scaler is not None
        assert scaler.moments.count == pytest.approx(trainer.step, abs=1e-3)
        if trainer.step == 60:
            scale = scaler.batch

            def noted(batch: Any) -> Any:
                factor = max(np.sqrt(scaler.moments.variance + 1e-8), scaler.largest / 5)
                scaled.append(batch.reward / factor)
                return scale(batch)

            def update(batches: Any, progress: Any) -> Any:
                learned.extend(batch.reward for batch in batches)
                return update_each(batches, progress)

            monkeypatch.setattr(scaler, "batch", noted)
            monkeypatch.setattr(trainer.learner, "update_each", update)

    algorithm = small(name, normalize_rewards=True, critic="categorical", num_atoms=11)
    train(tmp_path, algorithm, steps=100, evaluate_every=0, callbacks=[watch])
    assert len(scaled) >= 30
    np.testing.assert_allclose(learned, scaled, rtol=1e-5)
    assert np.abs(scaled).max() < 5 < 100 * np.abs(scaled).max()
