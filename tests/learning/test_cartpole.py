"""PPO learns CartPole-v1: ten evaluation episodes of 475 steps on average, within 40,000 steps, from the preset."""

import pytest

import duetto
from duetto.algorithms import PPO
from duetto.presets import choose

SOLVED = 475  # Gymnasium's reward threshold; every step pays 1, and 500 is the most


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_cartpole_is_learned(backend, tmp_path):
    name, preset = choose("ppo", "CartPole-v1", None)
    assert name == "classic"

    def stop_when_solved(session):
        if session.last_evaluation is not None and session.last_evaluation[1].mean_return >= SOLVED:
            session.stop()

    options = preset.run | {"evaluate_every": 5_000, "checkpoint_every": 0}
    trained = duetto.train(
        PPO(**preset.algorithm),
        "CartPole-v1",
        backend=backend,
        callbacks=[stop_when_solved],
        runs_dir=tmp_path,
        **options,
    )
    evaluations = trained.evaluations()
    assert evaluations[0]["mean_return"] < 150  # an untrained policy leans one way
    assert evaluations[-1]["mean_return"] >= SOLVED
    assert evaluations[-1]["step"] <= 40_000
