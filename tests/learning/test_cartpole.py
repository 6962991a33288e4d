"""PPO and DQN learn CartPole-v1: ten evaluation episodes of 475 steps on average, from the presets."""

import pytest

import duetto
from duetto.algorithms import ALGORITHMS
from duetto.presets import choose

SOLVED = 475  # Gymnasium's reward threshold; every step pays 1, and 500 is the most
WITHIN = {"ppo": 40_000, "dqn": 50_000}  # steps
PRESETS = {"ppo": "classic", "dqn": "CartPole-v1"}


@pytest.mark.parametrize(
    ("backend", "algorithm"),
    [("torch", "ppo"), ("jax", "ppo"), ("jax", "dqn"), pytest.param("torch", "dqn", marks=pytest.mark.slow)],
)
def test_cartpole_is_learned(backend, algorithm, tmp_path):
    name, preset = choose(algorithm, "CartPole-v1", None)
    assert name == PRESETS[algorithm]

    def stop_when_solved(trainer):
        if trainer.last_evaluation is not None and trainer.last_evaluation[1].mean_return >= SOLVED:
            trainer.stop()

    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in preset.algorithm.items()}
    options = preset.run | {"evaluate_every": 5_000, "checkpoint_every": 0}
    trained = duetto.train(
        ALGORITHMS[algorithm](**fields),
        "CartPole-v1",
        backend=backend,
        callbacks=[stop_when_solved],
        runs_dir=tmp_path,
        **options,
    )
    evaluations = trained.evaluations()
    assert evaluations[0]["mean_return"] < 150  # an untrained policy leans one way
    assert evaluations[-1]["mean_return"] >= SOLVED
    assert evaluations[-1]["step"] <= WITHIN[algorithm]
