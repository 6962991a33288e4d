"""TD3, DDPG, SAC, CrossQ learn Pendulum-v1: ten evaluation episodes over -250 within 20,000 steps, by the presets."""

import pytest

import duetto
from duetto.algorithms import ALGORITHMS
from duetto.presets import choose

SOLVED = -250  # DI-engine's stop value; a policy that does nothing gets about -1,200


def options(algorithm: str):
    _, preset = choose(algorithm, "Pendulum-v1", None)
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in preset.algorithm.items()}
    return ALGORITHMS[algorithm](**fields), preset.run


CASES = [("td3", "torch"), ("td3", "jax"), ("ddpg", "torch")]


@pytest.mark.parametrize(
    ("algorithm", "backend"),
    [
        *CASES,
        ("sac", "jax"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [("ddpg", "jax"), ("sac", "torch"), ("crossq", "torch"), ("crossq", "jax")]
        ),
    ],
)
def test_pendulum_is_learned(algorithm, backend, tmp_path):
    agent, run = options(algorithm)
    assert run["steps"] <= 20_000

    def stop_when_solved(trainer):
        if trainer.last_evaluation is not None and trainer.last_evaluation[1].mean_return > SOLVED:
            trainer.stop()

    trained = duetto.train(
        agent,
        "Pendulum-v1",
        backend=backend,
        callbacks=[stop_when_solved],
        runs_dir=tmp_path,
        checkpoint_every=0,
        **run,
    )
    evaluations = trained.evaluations()
    assert evaluations[0]["mean_return"] < -900
    assert evaluations[-1]["mean_return"] > SOLVED
    assert evaluations[-1]["step"] <= 20_000
