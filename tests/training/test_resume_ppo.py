"""PPO's part of the promise: N + M steps in one go, and N, `kill -9`, `resume`, M, end in the same bits.

Checkpoints fall between two rollouts and in the middle of one; rollouts hold episodes that were cut.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from policy_environments import Cell, Pieces, Seen, Shifted, Wander
from small_runs import CrashAt, CrashError, StopAt, assert_same, checkpoints, outcome, small, train
from test_resume import check_killed_anywhere

from duetto.errors import DuettoError
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
    assert bool(state["ends"]) == (stop_at in (50, 62))  # after 9 and 15 vector steps of a rollout an episode was cut
    assert_same(train(tmp_path, algorithm, name="whole", **options), stopped.resume())


@pytest.mark.parametrize("environment", [Wander, Shifted, Cell, Seen, Pieces])
def test_whatever_is_observed(tmp_path: Path, environment: Any):
    """Also where the last episode that was cut ended with a picture, with parts or with a single integer."""
    options: dict[str, Any] = {"environment": environment, "num_envs": 2, "steps": 120, "evaluate_every": 0}
    algorithm = small("ppo", normalize_observations=True, image_features=8)
    stopped = train(tmp_path, algorithm, name="stopped", callbacks=[StopAt(90)], **options)
    assert checkpoints(stopped).load_latest().state["memory"]["ends"]
    resumed = Run(stopped.path, environment).resume()
    assert_same(train(tmp_path, algorithm, name="whole", **options), resumed)


def test_what_was_logged_after_the_checkpoint_is_logged_once(tmp_path: Path):
    with pytest.raises(CrashError):
        train(tmp_path, small("ppo"), name="crashed", callbacks=[CrashAt(79)])
    run = Run(tmp_path / "crashed")
    assert checkpoints(run).steps() == [40]
    assert_same(train(tmp_path, small("ppo"), name="whole"), run.resume())
    assert [line["step"] for line in run.metrics()] == [25, 50, 75, 100, 125, 150, 175, 200]


def test_more_steps_than_planned(tmp_path: Path):
    """What does not depend on the length of the run continues as if it had been planned so."""
    whole = train(tmp_path, small("ppo"), name="whole", steps=200)
    run = train(tmp_path, small("ppo"), name="short", steps=120)
    run.resume(steps=200)
    assert_same(whole, run)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_vector_environments_of_the_users_own_begin_new_episodes(tmp_path: Path, mode: AutoresetMode):
    """Nothing of theirs can be saved: the rollout's trace is cut there, and it still learns to the end."""

    def vector() -> SyncVectorEnv:
        return SyncVectorEnv([Secret] * 2, autoreset_mode=mode)

    options: dict[str, Any] = {"num_envs": 2, "evaluate_every": 0, "steps": 150}
    algorithm = small("ppo", normalize_rewards=True)
    stopped = train(tmp_path, algorithm, vector(), name="stopped", callbacks=[StopAt(50)], **options)
    before = checkpoints(stopped).load_latest().state["memory"]
    run, seen = Run(stopped.path, vector()), []
    run.resume(on_start=lambda trainer: seen.append((trainer.notices, trainer.memory.state_dict())))
    [(notices, memory)] = seen
    restored, _ = notices
    assert "could not be restored" in restored
    assert "the run continues with new episodes" in restored
    assert len(memory["ends"]) > len(before["ends"])
    assert memory["arrays"]["truncated"][-1].sum() > before["arrays"]["truncated"][-1].sum()
    state = outcome(run)["state"]
    assert state["trainer"]["step"] >= 150
    assert state["learner"]["updates"] == 2 * (state["stepper"]["steps"] // 16)


class Secret(Wander):
    """An environment whose episodes must not be repeated."""

    metadata = Wander.metadata | {"resets_only": True}


def test_another_number_of_steps_is_refused(tmp_path: Path):
    run = train(tmp_path, small("ppo"), callbacks=[StopAt(50)])
    path = run.path / "config.yaml"
    path.write_text(path.read_text("utf-8").replace("rollout_steps: 16", "rollout_steps: 32"), "utf-8")
    with pytest.raises(DuettoError, match="rollout has 16 steps of 1 environments, this run's 32 of 1"):
        Run(run.path).resume(accept_changes=True)


def test_numbers_in_a_checkpoint_are_finite_or_never_read(tmp_path: Path):
    """Of a rollout only the steps that were made are kept: the rest is NaN."""
    run = train(tmp_path, small("ppo"), callbacks=[StopAt(50)], steps=100)
    arrays = checkpoints(run).load_latest().state["memory"]["arrays"]
    assert {len(array) for array in arrays.values()} == {2}
    assert all(np.isfinite(array).all() for array in arrays.values())
