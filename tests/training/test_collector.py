"""The collector: random first steps, and exploration noise at the start of episodes."""

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


class RecordingLearner:
    """A learner that always chooses the same action, and remembers every call."""

    recurrent = False

    def __init__(self) -> None:
        self.calls: list[tuple[np.ndarray, np.ndarray]] = []

    def collect(self, obs: Any, noise: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        self.calls.append((np.array(obs), noise.copy()))
        return np.clip(0.25 + noise, -1, 1).astype(np.float32), {"first": obs[:, 0].copy()}


class CollectorSetup:
    """A collector with its environments, learner and normalizer."""

    def __init__(
        self, algorithm: Algorithm, num_envs: int = 1, seed: int = 0, length: int = 4, environment: Any = None
    ) -> None:
        kwargs = {"num_envs": num_envs, "kwargs": {"length": length}}
        self.stepper = environments.make(environment) if environment else environments.make(Line, **kwargs)
        self.stepper.reset(0)
        self.learner = RecordingLearner()
        self.normalizer = Normalizer(self.stepper.observation_space, *algorithm.observation_scaling())
        learner: Any = self.learner
        self.collector = Collector(algorithm, self.stepper, learner, self.normalizer, seed)

    def collect(self, steps: int, first: int = 0, total: int = 1000) -> list[Any]:
        n = self.stepper.num_envs
        return [self.collector.collect(step, total)[0] for step in range(first, first + steps * n, n)]

    @property
    def noises(self) -> np.ndarray:
        return np.array([noise for _, noise in self.learner.calls])


def test_random_steps_are_uniform_and_skip_the_networks():
    parts = CollectorSetup(small(random_steps=400), num_envs=2)
    actions = np.concatenate([experience.action for experience in parts.collect(200)])
    assert parts.learner.calls == []
    assert actions.shape == (400, 2)
    assert -1 <= actions.min() < -0.97
    assert 0.97 < actions.max() <= 1
    assert abs(actions.mean()) < 0.1
    parts.collect(3, first=400)
    assert len(parts.learner.calls) == 3


@pytest.mark.parametrize("reset", [True, False])
def test_ou_noise_restarts_only_at_the_end_of_an_episode(reset: bool):
    algorithm = small(random_steps=0, exploration="ou", ou_theta=0.0, exploration_noise=0.1, ou_reset=reset)
    parts = CollectorSetup(algorithm, num_envs=2, length=4)
    parts.stepper.reset_env(1, seed=5)
    parts.collect(1)
    parts.stepper.reset_env(1, seed=5)  # so environment 1 ends one step after environment 0
    parts.collect(6, first=2)
    steps = np.diff(parts.noises, axis=0)  # increments of a random walk, except after a reset of the noise
    random = np.random.default_rng(np.random.SeedSequence([0, __import__("zlib").crc32(b"exploration"), 0]))
    normal = np.array([random.standard_normal((2, 2), dtype=np.float32) for _ in range(7)])
    walks = np.abs(steps - 0.1 * normal[1:]).max(axis=2) < 1e-6
    wanted = np.ones((6, 2), bool)
    if reset:
        wanted[3, 0] = wanted[4, 1] = False  # environment 0's fourth step was the last of its episode
        wanted[0, 1] = False  # reset_env started a new episode here
        np.testing.assert_allclose(parts.noises[4, 0], 0.1 * normal[4, 0], rtol=1e-5)
    np.testing.assert_array_equal(walks, wanted)


@pytest.mark.parametrize("mode", AutoresetMode)
def test_ou_noise_restarts_with_episodes_in_every_autoreset_mode(mode: AutoresetMode):
    """In a step that only resets, the environment ignores the action, so the noise must not change."""
    algorithm = small("ddpg", random_steps=0, exploration="ou", ou_theta=0.0, exploration_noise=0.2)
    parts = CollectorSetup(algorithm, environment=Whole([partial(Line, 3)] * 4, autoreset_mode=mode))
    starts = []
    for step in range(400):
        starts.append(parts.stepper.starts.copy())
        parts.collector.collect(step, 400)
    first = parts.noises[np.array(starts)]
    assert len(first) >= 400
    assert first.std() == pytest.approx(0.2, rel=0.1)
