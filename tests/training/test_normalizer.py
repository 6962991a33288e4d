"""Running normalisation: which numbers it takes in, which parts it scales, what is saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from fake_run import same
from line_environment import Line
from policy_environments import Wander
from small_runs import checkpoints, small, train

from duetto.algorithms.base import Batch, RolloutBatch, SequenceBatch
from duetto.networks.sequence_input import SequenceInput
from duetto.networks.spaces import Box, Dict, Discrete
from duetto.training.normalizer import Normalizer
from duetto.training.trainer import Learning, Trainer

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


@pytest.mark.parametrize(("mode", "seen"), [("collected", 1), ("sampled", 5)])
def test_batches_count_only_where_sampled_ones_are_meant(mode: str, seen: int):
    normalizer = Normalizer(VECTOR, mode)
    obs = np.ones((2, 2), np.float32)
    before = normalizer.batch(batch(obs))
    assert moments(normalizer)[2] == seen
    np.testing.assert_array_equal(before.next_obs, normalizer(obs))  # scaled by statistics that include the batch


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


def test_its_state_is_all_of_it():
    one, two = Normalizer(PARTS, "sampled"), Normalizer(PARTS, "sampled")
    one.observe({"where": np.random.default_rng(0).normal(size=(20, 2))})
    two.load_state_dict(one.state_dict())
    assert same(one.state_dict(), two.state_dict())
    for normalizer in (one, two):
        normalizer.observe({"where": np.ones((3, 2))})
    assert same(one.state_dict(), two.state_dict())


def test_in_a_run_collected_means_every_step_also_the_random_ones(tmp_path: Path):
    observed: list[np.ndarray] = []
    counts: list[float] = []

    def look(trainer: Trainer) -> None:
        counts.append(moments(trainer.normalizer)[2])
        observed.append(trainer.stepper.obs)

    train(tmp_path, small(normalize_observations="collected"), Line, num_envs=3, steps=60, callbacks=[look])
    assert counts == list(range(4, 64, 3))  # one at first, then 3 environments


def test_in_a_run_sampled_means_every_batch(tmp_path: Path):
    counts: dict[int, float] = {}
    train(
        tmp_path,
        small(normalize_observations="sampled"),
        Line,
        steps=33,
        callbacks=[lambda trainer: counts.update({trainer.step: moments(trainer.normalizer)[2]})],
    )
    assert [counts[step] for step in (29, 30, 31, 32, 33)] == [
        1,
        1,
        33,
        65,
        97,
    ]  # batches of 16 and their next, after step 30


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


@pytest.mark.parametrize("mode", ["off", "collected", "sampled"])
def test_only_of_rollouts_it_learns_behind_them(mode: str):
    normalizer = Normalizer(VECTOR, mode)
    before = normalizer.state_dict()
    normalizer.after_learning(rollout(np.ones((2, 2), np.float32), [1, 1]))
    assert same(before, normalizer.state_dict())


def test_in_a_run_rollouts_means_every_step_once_and_behind_each_rollout(tmp_path: Path):
    """2 environments of 16 steps: 32 rows after each rollout, whatever the epochs; frozen inside it."""
    counts: dict[int, float] = {}
    seen: dict[int, np.ndarray] = {}

    def look(trainer: Trainer) -> None:
        counts[trainer.step] = moments(trainer.normalizer)[2]
        seen[trainer.step] = trainer.stepper.obs
        before = trainer.normalizer.state_dict()
        trainer.evaluate()
        assert same(before, trainer.normalizer.state_dict())

    options: dict[str, Any] = {"num_envs": 2, "steps": 80, "evaluate_every": 80}
    run = train(tmp_path, small("ppo", normalize_observations=True, epochs=3), Wander, callbacks=[look], **options)
    assert [counts[step] for step in (2, 30, 32, 62, 64, 80)] == [1, 1, 33, 33, 65, 65]
    agent = run.agent()
    assert same(agent._normalizer.state_dict(), checkpoints(run).load_latest().state["normalizer"])
    assert moments(agent._normalizer)[2] == 65


# ---------------------------------------------------------------------------------------------------- steps
def test_in_a_run_steps_scale_as_gymnasiums_wrapper_does(tmp_path: Path):
    """The first rollout too; what is learned from is what was acted on."""
    raw, learned = [], []

    def look(trainer: Trainer) -> None:
        raw.append(trainer.stepper.obs[0].copy())

    options: dict[str, Any] = {"steps": 20, "evaluate_every": 0}
    scaling = {"observation_statistics": "steps", "normalization_prior": 1e-4, "observation_clip": 10.0}
    algorithm = small("ppo", normalize_observations=True, epochs=1, minibatches=1, rollout_steps=20, **scaling)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            Learning,
            "learn",
            lambda learning, samples, step: iter([learned.extend(learning._prepared(s.batch) for s in samples)]),
        )
        train(tmp_path, algorithm, Wander, callbacks=[look], **options)
    env = Wander()
    seen = [env.reset(seed=0)[0], *raw[:-1]]
    theirs = gymnasium.wrappers.NormalizeObservation(env)
    expected = [np.clip(theirs.observation(obs), -10, 10) for obs in seen]
    np.testing.assert_allclose(learned[0].obs, expected, rtol=1e-4, atol=1e-5)


# ---------------------------------------------------------------------------------------------------- bytes


BYTE_RUNS: list[tuple[str, dict[str, Any]]] = [
    ("td3", {"normalize_observations": "collected"}),
    ("ppo", {"normalize_observations": True}),
    ("ppo", {"normalize_observations": True, "observation_statistics": "steps"}),
]


# ---------------------------------------------------------------------------------------------------- a number
