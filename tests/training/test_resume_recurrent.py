"""Recurrent networks' part of the promise: killed within an episode, a run continues with its hidden state.

Episodes are cut after 37 steps and checkpoints fall every 40, so that most of them hold states in mid-episode.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_resume import check_killed_anywhere

SEQUENCES = {"recurrent": "lstm", "recurrent_size": 8, "unroll": 6, "overlap": 3, "burn_in": 3, "batch_size": 8}
CUT: dict[str, Any] = {"environment_options": {"max_episode_steps": 37}, "num_envs": 2}
CHOICES = {"prioritized": True, "n_step": 3, "head_hidden": (16,), "learning_rate": 1e-3, "train_every": 2}
CASES = {
    "td3": ("Pendulum-v1", SEQUENCES),
    "ddpg": ("Pendulum-v1", SEQUENCES | {"recurrent": "gru", "exploration": "ou"}),
    "dqn": ("CartPole-v1", SEQUENCES | CHOICES),
    "r2d2": ("CartPole-v1", SEQUENCES | CHOICES | {"recurrent_layers": 2}),
    "ppo": ("CartPole-v1", {"recurrent": "lstm", "recurrent_size": 8}),
}
FAST = {("torch", "td3"), ("jax", "r2d2"), ("jax", "ppo")}


@pytest.mark.parametrize(
    ("backend", "algorithm"),
    [
        pytest.param(backend, algorithm, marks=() if (backend, algorithm) in FAST else pytest.mark.slow)
        for backend in ("torch", "jax")
        for algorithm in CASES
    ],
)
def test_killed_at_a_random_step(tmp_path: Path, backend: str, algorithm: str):
    environment, hyperparameters = CASES[algorithm]
    check_killed_anywhere(
        tmp_path,
        algorithm=algorithm,
        hyperparameters=hyperparameters,
        environment=environment,
        backend=backend,
        threads=1,
        **CUT,
    )
