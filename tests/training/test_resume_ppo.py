"""PPO's part of the promise: N + M steps in one go, and N, `kill -9`, `resume`, M, end in the same bits.

Checkpoints fall between two rollouts and in the middle of one; rollouts hold episodes that were cut.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_runs import StopAt, assert_same, checkpoints, small, train
from test_resume import check_killed_anywhere

EVERYTHING = {
    "normalize_observations": True,
    "normalize_rewards": True,
    "learning_rate_decay": "linear",
    "clip_range_decay": "linear",
    "learning_rate_kl": 0.01,
    "target_kl": 0.02,
    "clip_value": True,
    "entropy_coefficient": 0.01,
    "stochastic_evaluation": True,
}
# 8 environments of 16 steps: a rollout every 128 steps, checkpoints every 40; episodes are cut after 37 at the latest.
CARTPOLE = {"environment": "CartPole-v1", "num_envs": 8, "steps": 640, "environment_options": {"max_episode_steps": 37}}
CHEETAH = {"environment": "HalfCheetah-v5", "steps": 200, "environment_options": {"max_episode_steps": 27}}
NORMALIZED = {"normalize_observations": True, "normalize_rewards": True}


@pytest.mark.parametrize(
    ("backend", "hyperparameters", "options"),
    [
        pytest.param("torch", EVERYTHING, CARTPOLE, id="torch-everything-CartPole"),
        pytest.param("jax", NORMALIZED, CHEETAH, id="jax-normalized-HalfCheetah"),
        pytest.param("jax", EVERYTHING, CARTPOLE, id="jax-everything-CartPole", marks=pytest.mark.slow),
        pytest.param("torch", NORMALIZED, CHEETAH, id="torch-normalized-HalfCheetah", marks=pytest.mark.slow),
        pytest.param("torch", {"recompute_advantages": True}, CARTPOLE, id="torch-recomputed", marks=pytest.mark.slow),
        pytest.param("jax", {"shared_torso": True}, CHEETAH | {"num_envs": 3}, id="jax-shared", marks=pytest.mark.slow),
    ],
)
def test_killed_at_a_random_step(tmp_path: Path, backend: str, hyperparameters: dict, options: dict):
    check_killed_anywhere(
        tmp_path, algorithm="ppo", hyperparameters=hyperparameters, backend=backend, threads=1, **options
    )


# 2 environments of 16 steps: 32 and 64 are between two rollouts, 34 and 62 are one vector step off, 2 is the first.
@pytest.mark.parametrize(
    ("backend", "stop_at", "statistics"),
    [
        *(("torch", step, "rollouts") for step in (2, 32, 34, 50, 62, 64)),
        ("torch", 50, "steps"),
        ("jax", 50, "rollouts"),
        ("jax", 64, "rollouts"),
    ],
)
def test_stopped_anywhere_in_a_rollout(tmp_path: Path, backend: str, stop_at: int, statistics: str):
    options: dict[str, Any] = {"environment": "CartPole-v1", "num_envs": 2, "steps": 100, "backend": backend}
    options |= {"environment_options": {"max_episode_steps": 7}, "evaluate_every": 60}
    algorithm = small("ppo", **EVERYTHING, observation_statistics=statistics)
    stopped = train(tmp_path, algorithm, name="stopped", callbacks=[StopAt(stop_at)], **options)
    assert checkpoints(stopped).steps()[-1] == stop_at
    state = checkpoints(stopped).load_latest().state["memory"]
    assert state["filled"] == stop_at // 2 % 16
    assert bool(len(state["ends"]["time"])) == (
        stop_at in (50, 62)
    )  # after 9 and 15 vector steps of a rollout an episode was cut
    assert_same(train(tmp_path, algorithm, name="whole", **options), stopped.resume())
