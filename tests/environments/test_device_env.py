"""Device environments: final observations, autoreset, seeding, saving, and errors."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import jax
import numpy as np
import pytest
from array_environments import PointMass, PooledPointMass

from duetto import environments
from duetto.environments import VecEnv
from duetto.environments.device_env import VectorDeviceEnv
from duetto.errors import CheckpointError, UsageError


def make_env(environment: Any = PointMass, num_envs: int = 3, **options: Any) -> VecEnv:
    return environments.make(environment, num_envs=num_envs, kwargs=options)


def play_random_steps(vec_env: VecEnv, steps: int, seed: int = 0) -> list[Any]:
    vec_env.reset(seed)
    random = np.random.default_rng(1)
    size = vec_env.action_space.size
    return [vec_env.step(random.uniform(-1, 1, (3, size)).astype(np.float32)[: vec_env.num_envs]) for _ in range(steps)]


def test_transition_has_the_final_observation_before_autoreset():
    vec_env = make_env(limit=5)
    steps = play_random_steps(vec_env, 12)
    for number, ((transition, episodes), (following, _)) in enumerate(pairwise(steps)):
        done = transition.terminated | transition.truncated
        assert done.all() == (number % 5 == 4)
        assert [episode.length for episode in episodes] == [5] * int(done.sum())
        assert (transition.next_obs == following.obs).all() == (not done.any())
        assert (np.abs(following.obs[done, 1]) == 0).all()  # an episode starts at rest


def test_episodes_depend_only_on_the_environment_seed():
    three, one = make_env(limit=4), make_env(num_envs=1, limit=4)
    together, alone = play_random_steps(three, 9), play_random_steps(one, 9)
    for (many, _), (single, _) in zip(together, alone, strict=True):
        np.testing.assert_array_equal(many.obs[:1], single.obs)
        np.testing.assert_array_equal(many.reward[:1], single.reward)


def test_actions_are_scaled_to_environment_units_and_clipped():
    env = PointMass()
    vector = VectorDeviceEnv(env, 3)
    state, _ = vector.reset(vector.keys(0))
    by_algorithm, first = vector.step(state, np.array([[0.5], [1.0], [9.0]], np.float32))
    in_units, second = vector.step_own(state, np.array([[1.0], [2.0], [2.0]], np.float32))
    np.testing.assert_array_equal(first.next_obs, second.next_obs)
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), by_algorithm, in_units))


def test_pooled_reset_renews_one_environment_per_step():
    vec_env = make_env(PooledPointMass, limit=4)
    steps = play_random_steps(vec_env, 13)
    starts = [steps[number][0].obs.copy() for number in (0, 4, 8, 12)]
    for earlier, later in pairwise(starts):
        # The pool is renewed in between, because an episode has more steps than there are environments.
        assert (earlier[:, 0] != later[:, 0]).all()
        assert (later[:, 1] == 0).all()


def test_device_env_resumes_exactly():
    one, other = make_env(limit=4), make_env(limit=4)
    play_random_steps(one, 6)
    saved = one.state_dict()
    other.load_state_dict(saved)
    assert other.resumed_exactly
    action = np.full((3, 1), 0.3, np.float32)
    for _ in range(6):
        np.testing.assert_array_equal(one.step(action)[0].next_obs, other.step(action)[0].next_obs)
    saved["environments"]["0"] = saved["environments"]["0"][:2]
    with pytest.raises(CheckpointError, match="environments"):
        other.load_state_dict(saved)


@pytest.mark.parametrize(
    ("environment", "how", "sentence"),
    [
        ("gymnax:CartPol-v1", {}, "pip install|Did you mean gymnax:CartPole-v1"),
        (PointMass, {"kwargs": {"limits": 3}}, "limits"),
        (PointMass(), {"kwargs": {"limit": 3}}, "too late"),
        (PointMass, {"render_mode": "rgb_array"}, "renders no frames"),
        (PointMass, {"vectorization": "subprocess"}, "steps all its environments at once"),
    ],
)
def test_invalid_device_env_options_are_refused(environment: Any, how: dict[str, Any], sentence: str):
    with pytest.raises(UsageError, match=sentence):
        environments.make(environment, **how)
