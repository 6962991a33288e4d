"""Running statistics of observations and rewards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import NormalizeObservation, NormalizeReward, TimeLimit
from gymnasium.wrappers.utils import RunningMeanStd
from line_environment import Line
from policy_environments import Wander
from small_runs import small, train

from duetto.algorithms.base import Batch, OneStep, SequenceBatch
from duetto.errors import UsageError
from duetto.networks.layers import SequenceInput
from duetto.networks.spaces import Box, Dict, Discrete
from duetto.training.normalizer import Normalizer, RewardScaler
from duetto.training.trainer import Trainer

VECTOR = Box((2,), "float32", (-np.inf,) * 2, (np.inf,) * 2)
IMAGE = Box((3, 4, 4), "uint8", (0.0,) * 48, (255.0,) * 48)
PARTS = Dict((("choice", Discrete(3)), ("image", IMAGE), ("where", VECTOR)))


def batch(obs: Any) -> Batch:
    return Batch(obs, None, None, None, obs, None)


def moments(normalizer: Normalizer, part: str = "") -> tuple[np.ndarray, np.ndarray, float]:
    state = normalizer.state_dict()[part]
    return state["mean"], state["variance"], state["count"]


def test_normalizer_tracks_mean_and_variance():
    """The prior counts as one sample with mean 0 and variance 1."""
    random = np.random.default_rng(0)
    data = random.normal(3.0, 2.0, (500, 2))
    normalizer = Normalizer(VECTOR, "collected")
    for rows in np.split(data, [1, 7, 100]):
        normalizer.observe(rows)
    mean, variance, count = moments(normalizer)
    assert count == 501
    np.testing.assert_allclose(mean, data.sum(axis=0) / 501, rtol=1e-10)
    squares = 1 + ((data - 0) ** 2).sum(axis=0)  # including the prior's variance of 1
    np.testing.assert_allclose(variance, squares / 501 - mean**2, rtol=1e-10)
    scaled = normalizer(data.astype(np.float32))
    assert scaled.dtype == np.float32
    np.testing.assert_allclose(scaled, np.clip((data - mean) / np.sqrt(variance), -5, 5), rtol=1e-4, atol=1e-5)


def test_normalizer_skips_integers_and_images():
    normalizer = Normalizer(PARTS, "sampled")
    obs = {
        "choice": np.array([1, 2]),
        "image": np.full((2, 3, 4, 4), 200, np.uint8),
        "where": np.array([[1.0, 5.0], [3.0, 9.0]], np.float32),
    }
    result = normalizer.batch(batch(obs))
    assert list(normalizer.state_dict()) == ["where"]
    for scaled in (result.obs, result.next_obs):
        assert scaled["choice"] is obs["choice"]
        assert scaled["image"] is obs["image"]
        assert np.abs(scaled["where"] - obs["where"]).min() > 0.1
    assert obs["where"].tolist() == [[1.0, 5.0], [3.0, 9.0]]  # the replay buffer's arrays are unchanged


def test_normalizer_counts_only_unmasked_sequence_steps():
    """Two sequences have four unmasked steps. The second has burn-in and padding around one step."""
    normalizer = Normalizer(VECTOR, "sampled")
    obs = np.arange(16, dtype=np.float32).reshape(2, 4, 2)
    mask = np.array([[1, 1, 1], [0, 1, 0]], np.float32)
    seen = SequenceInput(obs, None, None, None, {}, None, None)
    result = normalizer.batch(SequenceBatch(seen, None, None, None, None, None, mask))
    mean, _, count = moments(normalizer)
    assert count == 9  # the prior, and obs and next_obs of each of the four steps
    both = obs[0, :3].sum(axis=0) + obs[1, 1] + obs[0, 1:].sum(axis=0) + obs[1, 2]
    np.testing.assert_allclose(mean, both / 9, rtol=1e-6)
    np.testing.assert_array_equal(result.obs.obs, normalizer(obs))


def test_observation_scaling_with_gymnasium_prior_equals_gymnasium():
    env = Wander()
    theirs, normalizer = NormalizeObservation(env), Normalizer(VECTOR, "steps", clip=10.0, prior=1e-4)
    for obs in [env.reset(seed=0)[0], *(env.step(action)[0] for action in (0, 1, 2))]:
        normalizer.observe(obs[None])
        np.testing.assert_allclose(normalizer(obs[None])[0], np.clip(theirs.observation(obs), -10, 10), 1e-4, 1e-5)


# ---------------------------------------------------------------------------------------------------- rewards
NOT_DONE, DONE = np.zeros(1, bool), np.ones(1, bool)
ENV_0 = np.zeros(1, np.int64)


def scale_reward(scaler: RewardScaler, reward: float, done: np.ndarray = NOT_DONE) -> float:
    """The scaled reward of a single environment."""
    scaled = scaler(np.array([reward], np.float32), ENV_0, done)
    assert (scaled.dtype, scaled.shape) == (np.float32, (1,))
    return float(scaled[0])


def test_reward_scaling_by_hand():
    """γ .5, rewards 1, 2 (the episode ends), 3: discounted sums 1, 2.5, 3. From (mean, variance, count) = (0, 1, 1):

    1:    (1 + 1² · 1/2) / 2 = .75;               1 / √.75 = 1.1547005
    2.5:  (1.5 + 2² · 2/3) / 3 = 1.3888889;       2 / √1.3888889 = 1.6970563
    3:    (4.1666667 + 1.8333333² · 3/4) / 4 = 1.671875;  3 / √1.671875 = 2.3201669
    """
    scaler = RewardScaler(1, 0.5)
    found = [scale_reward(scaler, 1), scale_reward(scaler, 2, DONE), scale_reward(scaler, 3)]
    np.testing.assert_allclose(found, [1.1547005, 1.6970563, 2.3201669], rtol=1e-6)


def test_reward_scaling_with_gymnasium_prior_equals_gymnasium():
    """The first scaled reward is 1 / 0.01, clipped to 10."""

    class FixedRewards(gymnasium.Env):
        observation_space, action_space = gymnasium.spaces.Box(0, 1, (1,)), gymnasium.spaces.Discrete(2)
        rewards = iter([1.0, 2.0, 3.0, -1.0, 0.5])

        def step(self, action: Any) -> Any:
            return np.zeros(1, np.float32), next(self.rewards), False, False, {}

    theirs = gymnasium.wrappers.NormalizeReward(FixedRewards(), gamma=0.5)
    expected = [np.clip(theirs.step(0)[1], -10, 10) for _ in range(5)]
    scaler = RewardScaler(1, 0.5, prior=1e-4)
    np.testing.assert_allclose([scale_reward(scaler, r) for r in (1, 2, 3, -1, 0.5)], expected, rtol=1e-6)
    assert scale_reward(RewardScaler(1, 0.5), 1) < 1.2 < 10 == expected[0]


# ---------------------------------------------------------------------------------------- sampled rewards
def sampled_scaler(*rewards: tuple[float, bool], discount: float = 0.5, bound: float = 5.0) -> RewardScaler:
    """Return a scaler for sampled batches, after these pairs of reward and end of episode."""
    scaler = RewardScaler(1, discount, prior=1e-4, sampled=True, bound=bound)
    for reward, done in rewards:
        assert scale_reward(scaler, reward, np.array([done])) == reward  # the buffer stores unscaled rewards
    return scaler


def scale_batch_reward(scaler: RewardScaler, reward: float) -> float:
    ones = np.ones(1, np.float32)
    single = OneStep(2 * reward * ones, ones, ones)
    batch = scaler.batch(Batch(ones, ones, reward * ones, ones, ones, ones, one_step=single))
    assert isinstance(batch, Batch)
    assert batch.one_step is not None
    assert (batch.reward.dtype, batch.one_step.reward.dtype) == (np.float32, np.float32)
    assert batch.one_step.reward[0] == pytest.approx(2 * batch.reward[0])
    return float(batch.reward[0])


def test_sampled_rewards_are_divided_by_discounted_sum_std():
    """γ .5: discounted sums 1, 2.5, -2.75 (the episode ends), 1: mean .4375, variance 3.7617, std 1.9395 > 2.75 / 5.

    FlashSAC's code ends each sum one step early: its sums are 1, 2.5, -4, -1, and a reward of 1 becomes .4109.
    """
    scaler = sampled_scaler((1, False), (2, False), (-4, True), (1, False))
    assert scale_batch_reward(scaler, 1) == pytest.approx(1 / 1.9395, rel=1e-4)
    assert scale_batch_reward(scaler, -7) == pytest.approx(-7 / 1.9395, rel=1e-4)  # not clipped
    assert scaler.largest == 2.75


def test_sampled_rewards_are_bounded_by_the_largest_discounted_sum():
    """γ .5: discounted sums 10, 15, 17.5: variance 9.7222, std 3.118 < 17.5 / 5."""
    rewards = [(10.0, False)] * 3
    assert scale_batch_reward(sampled_scaler(*rewards), 7) == pytest.approx(2.0)
    assert scale_batch_reward(sampled_scaler(*rewards, bound=0), 7) == pytest.approx(7 / 3.118, rel=1e-3)


# ---------------------------------------------------------------------------------------------------- runs
def test_reward_scaling_applies_to_batches_not_the_buffer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The statistics at the step of the update scale each batch; they also count random steps."""
    scaled: list[np.ndarray] = []
    learned: list[np.ndarray] = []

    def watch(trainer: Trainer) -> None:
        scaler, update_each = trainer.collector.rewards, trainer.learner.update_each
        assert scaler is not None
        assert scaler.moments.count == pytest.approx(trainer.step, abs=1e-3)
        if trainer.step == 60:
            scale = scaler.batch

            def record_and_scale(batch: Any) -> Any:
                factor = max(np.sqrt(scaler.moments.variance + 1e-8), scaler.largest / 5)
                scaled.append(batch.reward / factor)
                return scale(batch)

            def update(batches: Any, progress: Any) -> Any:
                learned.extend(batch.reward for batch in batches)
                return update_each(batches, progress)

            monkeypatch.setattr(scaler, "batch", record_and_scale)
            monkeypatch.setattr(trainer.learner, "update_each", update)

    algorithm = small("sac", normalize_rewards=True, critic="categorical", num_atoms=11)
    train(tmp_path, algorithm, steps=100, evaluate_every=0, callbacks=[watch])
    assert len(scaled) >= 30
    np.testing.assert_allclose(learned, scaled, rtol=1e-5)
    assert np.abs(scaled).max() < 5 < 100 * np.abs(scaled).max()


class Own(gymnasium.Wrapper):
    """A custom wrapper with Gymnasium's statistics."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.moments = RunningMeanStd(shape=(2,))


def wrapped() -> gymnasium.Env:
    return TimeLimit(NormalizeObservation(Line()), 100)


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        (wrapped, "NormalizeObservation"),
        (gymnasium.vector.SyncVectorEnv([wrapped] * 2), "NormalizeObservation"),
        (lambda: NormalizeReward(Line()), "NormalizeReward"),
        (lambda: Own(Line()), "Own"),
    ],
)
def test_wrappers_with_running_statistics_are_refused(tmp_path: Path, environment: Any, named: str):
    with pytest.raises(UsageError) as refusal:
        train(tmp_path, environment=environment)
    assert f" has a {named}. Its running statistics belong to one environment" in str(refusal.value)
    assert not list(tmp_path.iterdir())


def test_wrappers_with_constant_statistics_are_allowed(tmp_path: Path):
    def fixed() -> gymnasium.Env:
        environment = NormalizeObservation(Line())
        environment.update_running_mean = False
        return environment

    assert train(tmp_path, environment=fixed, steps=40).evaluations()
