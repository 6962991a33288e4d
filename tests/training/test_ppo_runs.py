"""Runs of PPO: action and observation spaces, metrics, evaluations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from policy_environments import Free, Pieces, Several, Wander, collect_observations
from small_runs import small, train
from vector_envs import Whole

import duetto
from duetto.training.trainer import Trainer

SHORT_RUN: dict[str, Any] = {"steps": 64, "evaluate_every": 0, "num_envs": 2}


@pytest.mark.parametrize("environment", [Several, Free, Pieces])
def test_ppo_agent_acts_the_same_on_both_frameworks(tmp_path: Path, environment: Any):
    """For several action and observation spaces; the environments refuse invalid actions."""
    options = {"normalize_observations": True, "image_features": 64, "policy_gain": 3.0, "learning_rate": 1e-4}
    run = train(tmp_path, small("ppo", **options), environment, **SHORT_RUN)
    one, two = (duetto.load(run.path, backend=backend) for backend in ("torch", "jax"))
    space, actions = environment.action_space, []
    for obs in collect_observations(environment()):
        action = one.act(obs)
        assert space.contains(action)
        np.testing.assert_allclose(action, two.act(obs), rtol=1e-4, atol=1e-5)
        actions.append(action)
    assert np.ptp(actions, axis=0).max() > 0, "actions that do not depend on observations"


# ---------------------------------------------------------------------------------------------------- metrics


@pytest.mark.parametrize(("target_kl", "updates"), [(1e9, 12), (1e-9, 2)])
def test_target_kl_skips_the_remaining_epochs(tmp_path: Path, target_kl: float, updates: int):
    """Two rollouts, at most 6 epochs each. A tiny target_kl allows only the first epoch of each."""
    algorithm = small("ppo", epochs=6, target_kl=target_kl)
    [line] = train(tmp_path, algorithm, Wander, **SHORT_RUN | {"log_every": 64}).metrics()
    assert line["learn/updates"] == updates


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("options", [{"recurrent": "lstm"}, {"recurrent": "gru", "previous_reward": "raw"}], ids=str)
def test_recurrent_ppo_first_update_has_zero_kl(tmp_path: Path, options: dict[str, Any], vector: bool):
    """The first update uses the same hidden states, previous actions and rewards as the acting policy."""
    environment: Any = Whole([Wander] * 2, autoreset_mode=AutoresetMode.NEXT_STEP) if vector else Wander
    algorithm = small("ppo", **options, recurrent_size=8, rollout_steps=13, epochs=1, minibatches=1, policy_gain=3.0)
    run = train(tmp_path, algorithm, environment, **SHORT_RUN | {"num_envs": 2, "log_every": 26})
    divergences = [line["learn/approx_kl_k2"] for line in run.metrics() if "learn/approx_kl_k2" in line]
    assert len(divergences) >= 2
    assert divergences == pytest.approx([0] * len(divergences), abs=1e-10)


# ---------------------------------------------------------------------------------------------------- evaluation
STOCHASTIC: dict[str, Any] = {"stochastic_evaluation": True, "policy_gain": 1.0}


def test_stochastic_evaluations_are_reproducible(tmp_path: Path):
    """Each evaluation starts with the same random numbers, during training and after it."""
    results: list[Any] = []

    def look(trainer: Trainer) -> None:
        if trainer.step == 32:
            results.extend(trainer.evaluate().returns.tolist() for _ in range(2))

    options = SHORT_RUN | {"evaluate_every": 64, "evaluation_episodes": 4}
    run = train(tmp_path, small("ppo", **STOCHASTIC), "CartPole-v1", callbacks=[look], **options)
    assert results[0] == results[1]
    assert len(set(results[0])) > 1
    again = run.evaluate(episodes=4)
    assert again.mean_return == run.evaluations()[-1]["mean_return"]
    np.testing.assert_array_equal(run.evaluate(episodes=4).returns, again.returns)
    assert not np.array_equal(run.evaluate(episodes=4, seed=5).returns, again.returns)
