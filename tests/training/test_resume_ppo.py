"""PPO's part of the promise: N + M steps in one go, and N, `kill -9`, `resume`, M, end in the same bits.

Checkpoints fall between two rollouts and in the middle of one; rollouts hold episodes that were cut.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gymnasium.vector import AutoresetMode
from policy_environments import Cell, Pieces, Seen, Shifted, Wander
from small_runs import AtStart, StopAt, assert_same, checkpoints, outcome, small, train
from test_resume import check_killed_anywhere
from vector_envs import Whole

from duetto.runs.run import Run

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


@pytest.mark.parametrize("environment", [Wander, Shifted, Cell, Seen, Pieces])
def test_whatever_is_observed(tmp_path: Path, environment: Any):
    """Also where the last episode that was cut ended with a picture, with parts or with a single integer."""
    options: dict[str, Any] = {"environment": environment, "num_envs": 2, "steps": 120, "evaluate_every": 0}
    algorithm = small("ppo", normalize_observations=True, image_features=8)
    stopped = train(tmp_path, algorithm, name="stopped", callbacks=[StopAt(90)], **options)
    assert checkpoints(stopped).load_latest().state["memory"]["ends"]["time"].size
    resumed = Run(stopped.path, environment).resume()
    assert_same(train(tmp_path, algorithm, name="whole", **options), resumed)


class Secret(Wander):
    """An environment whose episodes must not be repeated."""

    metadata = Wander.metadata | {"resets_only": True}


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_vector_environments_of_the_users_own_begin_new_episodes(tmp_path: Path, mode: AutoresetMode):
    """Nothing of theirs can be saved: the rollout's trace is cut there, and it still learns to the end."""

    def vector() -> Whole:
        return Whole([Secret] * 2, autoreset_mode=mode)

    options: dict[str, Any] = {"num_envs": 2, "evaluate_every": 0, "steps": 150}
    algorithm = small("ppo", normalize_rewards=True)
    stopped = train(tmp_path, algorithm, vector(), name="stopped", callbacks=[StopAt(50)], **options)
    before = checkpoints(stopped).load_latest().state["memory"]
    run, seen = Run(stopped.path, vector()), []
    run.resume(callbacks=[AtStart(lambda trainer: seen.append((trainer.notices, trainer.memory.state_dict())))])
    [(notices, memory)] = seen
    restored, _ = notices
    assert "could not be restored" in restored
    assert "the run continues with new episodes" in restored
    assert len(memory["ends"]["time"]) > len(before["ends"]["time"])
    assert memory["arrays"]["truncated"][-1].sum() > before["arrays"]["truncated"][-1].sum()
    state = outcome(run)["state"]
    assert state["trainer"]["step"] >= 150
    assert state["learner"]["updates"] == 2 * (state["stepper"]["steps"] // 16)
