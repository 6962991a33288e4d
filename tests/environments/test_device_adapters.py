"""gymnax, Navix and MuJoCo Playground. Tests of packages that are not installed are skipped.

gymnax needs Gymnasium below 1.4, so its tests run only in a separate virtual environment.
"""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from duetto import environments
from duetto.errors import UsageError
from duetto.install_hint import install
from duetto.networks.spaces import Box, Discrete


def play_random_steps(name: str, steps: int, **options: Any) -> Any:
    vec_env = environments.make(name, num_envs=4, kwargs=options)
    vec_env.reset(0)
    random = np.random.default_rng(0)
    return vec_env, [vec_env.step(vec_env.sample_actions(random)) for _ in range(steps)]


def test_gymnax_terminates_by_rule_and_truncates_at_limit():
    pytest.importorskip("gymnax")
    vec_env, steps = play_random_steps("gymnax:CartPole-v1", 60, max_steps_in_episode=15)
    assert (vec_env.observation_space.size, vec_env.action_space) == (4, Discrete(2))
    ends = {length: [] for length in ("terminated", "truncated")}
    for (transition, episodes), (following, _) in pairwise(steps):
        done = transition.terminated | transition.truncated
        assert ((transition.next_obs == following.obs).all(1) == ~done).all()
        for episode in episodes:
            ends["truncated" if transition.truncated[episode.env] else "terminated"].append(episode.length)
            fell = np.abs(transition.next_obs[episode.env, [0, 2]]) > (2.4, 12 * np.pi / 180)
            assert fell.any() == transition.terminated[episode.env]
    assert set(ends["truncated"]) == {15}
    assert max(ends["terminated"]) <= 15


def test_gymnax_actions_are_in_environment_units():
    pytest.importorskip("gymnax")
    vec_env, steps = play_random_steps("gymnax:Pendulum-v1", 3)
    assert vec_env.action_space == Box((1,), "float32", (-2.0,), (2.0,))
    assert min(transition.reward.min() for transition, _ in steps) < -0.1


def test_navix_truncates_at_its_step_limit():
    pytest.importorskip("navix")
    vec_env, steps = play_random_steps("navix:Navix-Empty-8x8-v0", 21, max_steps=10)
    assert (vec_env.observation_space.size, vec_env.action_space) == (192, Discrete(7))
    truncated = [number for number, (transition, _) in enumerate(steps) if transition.truncated.any()]
    assert truncated[0] == 9
    assert all(length <= 10 for _, episodes in steps for *_, length, _ in episodes)


@pytest.mark.slow
def test_playground_truncates_at_its_step_limit():
    pytest.importorskip("mujoco_playground")
    vec_env, steps = play_random_steps("playground:CartpoleBalance", 9, episode_length=4)
    assert (vec_env.observation_space.size, vec_env.action_space.size) == (5, 1)
    assert [number for number, (transition, _) in enumerate(steps) if transition.truncated.all()] == [3, 7]
    assert all(np.isfinite(transition.next_obs).all() for transition, _ in steps)


@pytest.mark.parametrize(
    ("module", "extra"), [("gymnax", "gymnax"), ("mujoco_playground", "playground"), ("navix", "navix")]
)
def test_missing_adapter_package_gives_the_install_command(module: str, extra: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError, match=r"needs the .* environments") as caught:
        environments.make(f"{extra}:Anything")
    assert install(extra) in str(caught.value)
