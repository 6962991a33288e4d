"""A handwritten training loop has the same losses as `duetto.train`."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from small_runs import train

import duetto
from duetto import learners

BY_HAND = Path(__file__).parents[2] / "docs" / "extending" / "by_hand.py"


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_handwritten_loop_has_the_losses_of_train(backend: learners.Backend, tmp_path: Path):
    algorithm = duetto.TD3(hidden=(16, 16), batch_size=16, learning_starts=100, random_steps=50)
    losses = runpy.run_path(str(BY_HAND))["losses"]
    by_hand = [*losses(algorithm, "Pendulum-v1", 500, backend)]
    options = {"steps": 500, "log_every": 1, "evaluate_every": 0, "environment_options": {}, "threads": 0}
    run = train(tmp_path, algorithm, backend=backend, **options)
    logged = [line["learn/critic_loss"] for line in run.metrics() if "learn/critic_loss" in line]
    assert len(by_hand) == 400
    assert by_hand == pytest.approx(logged, rel=1e-6)
