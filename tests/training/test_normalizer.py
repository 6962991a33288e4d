"""Running statistics of observations and rewards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from fake_run import same
from gymnasium.wrappers import NormalizeObservation, NormalizeReward, TimeLimit
from gymnasium.wrappers.utils import RunningMeanStd
from line_environment import Line
from policy_environments import Wander
from small_runs import AtStart, small, train

from duetto.algorithms.base import Batch, OneStep, RolloutBatch, SequenceBatch
from duetto.errors import UsageError
from duetto.networks.layers import SequenceInput
from duetto.networks.spaces import Box, Dict, Discrete
from duetto.training.normalizer import Normalizer, RewardScaler
from duetto.training.trainer import Trainer

VECTOR = Box((2,), "float32", (-np.inf,) * 2, (np.inf,) * 2)
IMAGE = Box((3, 4, 4), "uint8", (0.0,) * 48, (255.0,) * 48)
BYTES = Box((2,), "uint8", (0.0,), (255.0,))
PARTS = Dict((("choice", Discrete(3)), ("image", IMAGE), ("where", VECTOR)))


def batch(obs: Any) -> Batch:
    return Batch(obs, None, None, None, obs, None)


def moments(normalizer: Normalizer, part: str = "") -> tuple[np.ndarray, np.ndarray, float]:
    state = normalizer.state_dict()[part]
    return state["mean"], state["variance"], state["count"]


def test_the_mean_and_variance_of_all_that_was_seen():
    """It starts as if it had seen one sample of mean 0 and variance 1."""
    random = np.random.default_rng(0)
    data = random.normal(3.0, 2.0, (500, 2))
    normalizer = Normalizer(VECTOR, "collected")
    for rows in np.split(data, [1, 7, 100]):
        normalizer.observe(rows)
    mean, variance, count = moments(normalizer)
    assert count == 501
    np.testing.assert_allclose(mean, data.sum(axis=0) / 501, rtol=1e-10)
    squares = 1 + ((data - 0) ** 2).sum(axis=0)  # of the first sample too
    np.testing.assert_allclose(variance, squares / 501 - mean**2, rtol=1e-10)
    scaled = normalizer(data.astype(np.float32))
    assert scaled.dtype == np.float32
    np.testing.assert_allclose(scaled, np.clip((data - mean) / np.sqrt(variance), -5, 5), rtol=1e-4, atol=1e-5)


def test_only_real_numbers_are_scaled():
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
    assert obs["where"].tolist() == [[1.0, 5.0], [3.0, 9.0]]  # the memory's own stay as they are


def test_both_observations_of_a_batch_count_as_in_skrl():
    """The first ones are scaled before the next ones are known."""
    normalizer = Normalizer(VECTOR, "sampled")
    obs, next_obs = np.array([[3, 3], [5, 5]], np.float32), np.array([[7, 7], [9, 9]], np.float32)
    result = normalizer.batch(batch(obs)._replace(next_obs=next_obs))
    first, both = Normalizer(VECTOR, "collected"), Normalizer(VECTOR, "collected")
    first.observe(obs)
    both.observe(obs)
    both.observe(next_obs)
    assert same(normalizer.state_dict(), both.state_dict())
    np.testing.assert_array_equal(result.obs, first(obs))
    np.testing.assert_array_equal(result.next_obs, both(next_obs))


def test_of_sequences_what_is_learned_from_counts():
    """Two sequences of three steps, the second with burn-in and padding around one step: four are learned from,
    each with its next observation."""
    normalizer = Normalizer(VECTOR, "sampled")
    obs = np.arange(16, dtype=np.float32).reshape(2, 4, 2)
    mask = np.array([[1, 1, 1], [0, 1, 0]], np.float32)
    seen = SequenceInput(obs, None, None, None, {}, None, None)
    result = normalizer.batch(SequenceBatch(seen, None, None, None, None, None, mask))
    mean, _, count = moments(normalizer)
    assert count == 9  # and the first, of mean 0
    both = obs[0, :3].sum(axis=0) + obs[1, 1] + obs[0, 1:].sum(axis=0) + obs[1, 2]
    np.testing.assert_allclose(mean, both / 9, rtol=1e-6)
    np.testing.assert_array_equal(result.obs.obs, normalizer(obs))


# ---------------------------------------------------------------------------------------------------- rollouts
def rollout(obs: Any, weight: Any) -> RolloutBatch:
    return RolloutBatch(obs, *[np.zeros(len(weight), np.float32)] * 5, weight=np.array(weight, np.float32))


def test_a_rollout_is_learned_from_as_it_was_collected():
    """Its own observations enter the statistics behind it, those of rows that were no steps never."""
    normalizer = Normalizer(VECTOR, "rollouts")
    batch = rollout(np.array([[1.0, 2.0], [3.0, 6.0], [1e6, 1e6]], np.float32), [1, 1, 0])
    for _ in range(3):
        np.testing.assert_allclose(normalizer.batch(batch).obs, [[1, 2], [3, 5], [5, 5]], rtol=1e-6)
    assert moments(normalizer)[2] == 1
    normalizer.after_learning(batch)
    mean, _, count = moments(normalizer)
    assert count == 3
    np.testing.assert_allclose(mean, [4 / 3, 8 / 3])


# ---------------------------------------------------------------------------------------------------- steps
def test_in_a_run_steps_scale_as_gymnasiums_wrapper_does(tmp_path: Path):
    """The first rollout too; what is learned from is what was acted on."""
    raw, learned = [], []

    def look(trainer: Trainer) -> None:
        raw.append(trainer.stepper.obs[0].copy())

    def watch(trainer: Trainer) -> None:
        update_each = trainer.learner.update_each
        trainer.learner.update_each = lambda batches, *how: learned.extend(batches) or update_each(batches, *how)

    options: dict[str, Any] = {"steps": 20, "evaluate_every": 0}
    scaling = {"observation_statistics": "steps", "normalization_prior": 1e-4, "observation_clip": 10.0}
    algorithm = small("ppo", normalize_observations=True, epochs=1, minibatches=1, rollout_steps=20, **scaling)
    train(tmp_path, algorithm, Wander, callbacks=[AtStart(watch), look], **options)
    env = Wander()
    seen = [env.reset(seed=0)[0], *raw[:-1]]
    theirs = gymnasium.wrappers.NormalizeObservation(env)
    expected = [np.clip(theirs.observation(obs), -10, 10) for obs in seen]
    np.testing.assert_allclose(learned[0].obs, expected, rtol=1e-4, atol=1e-5)


# ---------------------------------------------------------------------------------------------------- bytes


# ---------------------------------------------------------------------------------------------------- a number


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


class Own(gymnasium.Wrapper):
    """A user's own, with the class that everybody takes."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.moments = RunningMeanStd(shape=(2,))


def wrapped() -> gymnasium.Env:
    return TimeLimit(NormalizeObservation(Line()), 100)


def vectors() -> gymnasium.vector.VectorEnv:
    return gymnasium.wrappers.vector.NormalizeObservation(gymnasium.vector.SyncVectorEnv([Line, Line]))


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        (wrapped, "NormalizeObservation"),
        (wrapped(), "NormalizeObservation"),
        (vectors(), "NormalizeObservation"),
        (gymnasium.vector.SyncVectorEnv([wrapped] * 2), "NormalizeObservation"),
        (lambda: NormalizeReward(Line()), "NormalizeReward"),
        (lambda: Own(Line()), "Own"),
    ],
)
def test_it_is_refused(tmp_path: Path, environment: Any, named: str):
    with pytest.raises(UsageError) as refusal:
        train(tmp_path, environment=environment)
    assert f" has a {named}: its running statistics are those of one environment" in str(refusal.value)
    assert not list(tmp_path.iterdir())


def test_statistics_that_stand_still_are_the_same_everywhere(tmp_path: Path):
    def fixed() -> gymnasium.Env:
        environment = NormalizeObservation(Line())
        environment.update_running_mean = False
        return environment

    assert train(tmp_path, environment=fixed, steps=40).evaluations()
