"""Presets solve CartPole-v1 and Pendulum-v1: ten evaluation episodes reach a return within a number of steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import duetto

# Gymnasium's reward threshold of CartPole-v1, whose episodes have 500 steps and pay 1 for each. DI-engine's stop value
# of Pendulum-v1, where a policy that does nothing gets about -1,200.
SOLVED = {"CartPole-v1": 475, "Pendulum-v1": -250}
UNTRAINED = {"CartPole-v1": 150, "Pendulum-v1": -900}
MAX_STEPS = {
    **{("ppo", "CartPole-v1"): 40_000, ("dqn", "CartPole-v1"): 50_000},
    **{(algorithm, "Pendulum-v1"): 20_000 for algorithm in ("td3", "ddpg", "sac", "crossq")},
}


@pytest.mark.parametrize(("algorithm", "environment"), MAX_STEPS)
def test_preset_solves_environment(algorithm: str, environment: str, backend: str, tmp_path: Path):
    def stop_when_solved(trainer: duetto.Trainer) -> None:
        if trainer.last_evaluation is not None and trainer.last_evaluation[1].mean_return >= SOLVED[environment]:
            trainer.stop()

    options: dict[str, Any] = {"evaluate_every": 5_000} if environment == "CartPole-v1" else {}
    run = duetto.train(
        algorithm,
        environment,
        backend=backend,
        callbacks=[stop_when_solved],
        runs_dir=tmp_path,
        checkpoint_every=0,
        **options,
    )
    assert run.config.preset != "default"
    evaluations = run.evaluations()
    assert evaluations[0]["mean_return"] < UNTRAINED[environment]
    assert evaluations[-1]["mean_return"] >= SOLVED[environment]
    assert evaluations[-1]["step"] <= MAX_STEPS[algorithm, environment]
