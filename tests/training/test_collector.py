"""From the environments to the memory: which action is taken, with which noise, and what is handed on."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from line_environment import Line
from small_runs import small
from vector_envs import Whole

from duetto import environments
from duetto.algorithms import Algorithm
from duetto.training.collector import Collector
from duetto.training.normalizer import Normalizer


class Recorder:
    """In the place of a learner: always the same action, and every call is remembered."""

    recurrent = False

    def __init__(self) -> None:
        self.calls: list[tuple[np.ndarray, np.ndarray]] = []

    def collect(self, obs: Any, noise: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        self.calls.append((np.array(obs), noise.copy()))
        return np.clip(0.25 + noise, -1, 1).astype(np.float32), {"first": obs[:, 0].copy()}


class Components:
    """A collector and what it joins."""

    def __init__(
        self, algorithm: Algorithm, num_envs: int = 1, seed: int = 0, length: int = 4, environment: Any = None
    ) -> None:
        kwargs = {"num_envs": num_envs, "kwargs": {"length": length}}
        self.stepper = environments.make(environment) if environment else environments.make(Line, **kwargs)
        self.stepper.reset(0)
        self.learner = Recorder()
        self.normalizer = Normalizer(self.stepper.observation_space, *algorithm.observation_scaling())
        learner: Any = self.learner
        self.collector = Collector(algorithm, self.stepper, learner, self.normalizer, seed)

    def collect(self, steps: int, first: int = 0, total: int = 1000) -> list[Any]:
        n = self.stepper.num_envs
        return [self.collector.collect(step, total)[0] for step in range(first, first + steps * n, n)]

    @property
    def noises(self) -> np.ndarray:
        return np.array([noise for _, noise in self.learner.calls])


def test_the_first_steps_are_uniformly_random_and_ask_nobody():
    parts = Components(small(random_steps=400), num_envs=2)
    actions = np.concatenate([experience.action for experience in parts.collect(200)])
    assert parts.learner.calls == []
    assert actions.shape == (400, 2)
    assert -1 <= actions.min() < -0.97
    assert 0.97 < actions.max() <= 1
    assert abs(actions.mean()) < 0.1
    parts.collect(3, first=400)
    assert len(parts.learner.calls) == 3


def test_what_is_handed_on_is_what_happened():
    parts = Components(small(random_steps=0), num_envs=2)
    before = parts.stepper.obs
    experience, episodes = parts.collector.collect(0, 1000)
    obs, noise = parts.learner.calls[0]
    np.testing.assert_array_equal(obs, before)
    np.testing.assert_array_equal(experience.obs, before)
    np.testing.assert_array_equal(experience.action, np.clip(0.25 + noise, -1, 1))
    np.testing.assert_array_equal(experience.extras["first"], before[:, 0])
    np.testing.assert_allclose(experience.next_obs - before, 0.1 * (1 + 2 * experience.action[:, :1]) * [[1, 1]], 1e-5)
    assert experience.env.tolist() == [0, 1]
    assert episodes == []
    assert [len(parts.collector.collect(step, 1000)[1]) for step in (2, 4, 6, 8)] == [0, 0, 2, 0]


@pytest.mark.parametrize("reset", [True, False])
def test_ou_noise_begins_again_where_an_episode_ended_and_only_there(reset: bool):
    algorithm = small(random_steps=0, exploration="ou", ou_theta=0.0, exploration_noise=0.1, ou_reset=reset)
    parts = Components(algorithm, num_envs=2, length=4)
    parts.stepper.reset_env(1, seed=5)
    parts.collect(1)
    parts.stepper.reset_env(1, seed=5)  # so environment 1 ends one step after environment 0
    parts.collect(6, first=2)
    steps = np.diff(parts.noises, axis=0)  # of a random walk: only a reset makes the noise another than this
    random = np.random.default_rng(np.random.SeedSequence([0, __import__("zlib").crc32(b"exploration"), 0]))
    normal = np.array([random.standard_normal((2, 2), dtype=np.float32) for _ in range(7)])
    walks = np.abs(steps - 0.1 * normal[1:]).max(axis=2) < 1e-6
    wanted = np.ones((6, 2), bool)
    if reset:
        wanted[3, 0] = wanted[4, 1] = False  # environment 0's fourth step was the last of its episode
        wanted[0, 1] = False  # and this one was made to start anew
        np.testing.assert_allclose(parts.noises[4, 0], 0.1 * normal[4, 0], rtol=1e-5)
    np.testing.assert_array_equal(walks, wanted)


@pytest.mark.parametrize(("mode", "count"), [("off", None), ("collected", 7.0), ("sampled", 1.0)])
def test_statistics_of_what_is_collected(mode: str, count: float | None):
    parts = Components(small(random_steps=2, normalize_observations=mode), num_envs=2)
    parts.collect(3)
    state = parts.normalizer.state_dict()
    assert state == {} if count is None else state[""]["count"] == count
    raw, scaled = parts.stepper.obs, parts.normalizer(parts.stepper.obs)
    parts.collect(1, first=6)
    if mode == "sampled":
        np.testing.assert_array_equal(parts.learner.calls[-1][0], scaled)
    if mode == "off":
        np.testing.assert_array_equal(parts.learner.calls[-1][0], raw)


@pytest.mark.parametrize("mode", AutoresetMode)
def test_noise_begins_at_0_with_an_episode_in_every_autoreset_mode(mode: AutoresetMode):
    """Where a step only resets, an action is drawn that nobody takes, and it moved the process on."""
    algorithm = small("ddpg", random_steps=0, exploration="ou", ou_theta=0.0, exploration_noise=0.2)
    parts = Components(algorithm, environment=Whole([partial(Line, 3)] * 4, autoreset_mode=mode))
    starts = []
    for step in range(400):
        starts.append(parts.stepper.starts.copy())
        parts.collector.collect(step, 400)
    first = parts.noises[np.array(starts)]
    assert len(first) >= 400
    assert first.std() == pytest.approx(0.2, rel=0.1)
