"""Environments of arrays: true final observations, autoreset, episodes that depend on seeds alone, and saving."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "training"))
from array_environments import DiscretePointMass, PointMass, PooledPointMass

from duetto import environments
from duetto.environments import VecEnv
from duetto.environments.device_env import VectorDeviceEnv
from duetto.errors import CheckpointError, UsageError


def made(environment: Any = PointMass, num_envs: int = 3, **options: Any) -> VecEnv:
    return environments.make(environment, num_envs=num_envs, kwargs=options)


def played(vec_env: VecEnv, steps: int, seed: int = 0) -> list[Any]:
    vec_env.reset(seed)
    random = np.random.default_rng(1)
    size = vec_env.action_space.size
    return [vec_env.step(random.uniform(-1, 1, (3, size)).astype(np.float32)[: vec_env.num_envs]) for _ in range(steps)]


def test_a_transition_has_the_final_observation_and_the_next_begins_anew():
    vec_env = made(limit=5)
    steps = played(vec_env, 12)
    for number, ((transition, episodes), (following, _)) in enumerate(pairwise(steps)):
        done = transition.terminated | transition.truncated
        assert done.all() == (number % 5 == 4)
        assert [episode.length for episode in episodes] == [5] * int(done.sum())
        assert (transition.next_obs == following.obs).all() == (not done.any())
        assert (np.abs(following.obs[done, 1]) == 0).all()  # an episode starts at rest


def test_episodes_depend_on_the_seed_of_an_environment_not_on_the_others():
    three, one = made(limit=4), made(num_envs=1, limit=4)
    together, alone = played(three, 9), played(one, 9)
    for (many, _), (single, _) in zip(together, alone, strict=True):
        np.testing.assert_array_equal(many.obs[:1], single.obs)
        np.testing.assert_array_equal(many.reward[:1], single.reward)


def test_actions_are_in_the_environments_units_and_within_bounds():
    env = PointMass()
    vector = VectorDeviceEnv(env, 3)
    state, _ = vector.reset(vector.keys(0))
    by_algorithm, first = vector.step(state, np.array([[0.5], [1.0], [9.0]], np.float32))
    in_units, second = vector.step_own(state, np.array([[1.0], [2.0], [2.0]], np.float32))
    np.testing.assert_array_equal(first.final_obs, second.final_obs)
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), by_algorithm, in_units))


def test_a_costly_reset_is_made_for_one_environment_a_step():
    vec_env = made(PooledPointMass, limit=4)
    steps = played(vec_env, 13)
    starts = [steps[number][0].obs.copy() for number in (0, 4, 8, 12)]
    for earlier, later in pairwise(starts):
        assert (earlier[:, 0] != later[:, 0]).all()  # renewed meanwhile: an episode is longer than N
        assert (later[:, 1] == 0).all()


def test_what_was_saved_continues_exactly():
    one, other = made(limit=4), made(limit=4)
    played(one, 6)
    saved = one.state_dict()
    other.load_state_dict(saved)
    assert other.resumed_exactly
    action = np.full((3, 1), 0.3, np.float32)
    for _ in range(6):
        np.testing.assert_array_equal(one.step(action)[0].next_obs, other.step(action)[0].next_obs)
    saved["environments"]["0"] = saved["environments"]["0"][:2]
    with pytest.raises(CheckpointError, match="environments"):
        other.load_state_dict(saved)


def test_discrete_actions():
    vec_env = made(DiscretePointMass)
    vec_env.reset(0)
    before = vec_env.obs
    transition, _ = vec_env.step(np.array([0, 1, 2]))
    push = transition.next_obs[:, 1] - 0.9 * before[:, 1]
    assert push[0] < -0.1 < push[1] < 0.1 < push[2]


@pytest.mark.parametrize(
    ("environment", "how", "sentence"),
    [
        ("gymnax:CartPol-v1", {}, "pip install|Did you mean gymnax:CartPole-v1"),
        (PointMass, {"kwargs": {"limits": 3}}, "limits"),
        (PointMass, {"render_mode": "rgb_array"}, "renders no frames"),
        (PointMass, {"vectorization": "subprocess"}, "steps all its environments at once"),
    ],
)
def test_mistakes(environment: Any, how: dict[str, Any], sentence: str):
    with pytest.raises(UsageError, match=sentence):
        environments.make(environment, **how)
