"""PPO in whole runs: every kind of action and observation, what the log says, how it is evaluated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from policy_environments import KINDS, Seen, Wander
from small_runs import StopAt, assert_same, checkpoints, small, train
from test_resume import EVERYTHING_OF_PPO

import duetto
from duetto.errors import UsageError
from duetto.training.trainer import Trainer

QUIET: dict[str, Any] = {"steps": 64, "evaluate_every": 0, "num_envs": 2}


def observed(environment: gymnasium.Env, count: int = 12) -> list[Any]:
    """What the environment gives, over two episodes."""
    environment.action_space.seed(0)
    seen = [environment.reset(seed=0)[0]]
    while len(seen) < count:
        obs, _, terminated, truncated, _ = environment.step(environment.action_space.sample())
        seen.append(environment.reset()[0] if terminated or truncated else obs)
    return seen


@pytest.mark.parametrize("environment", KINDS)
def test_every_kind_of_action_and_observation(tmp_path: Path, environment: Any):
    """The environments refuse what is not theirs. What one framework trained acts the same on the other."""
    options = {"normalize_observations": True, "image_features": 64, "policy_gain": 3.0, "learning_rate": 1e-4}
    hidden = () if environment is Seen else (32, 32)  # a picture's likeliest choice changes seldom
    run = train(tmp_path, small("ppo", hidden=hidden, **options), environment, **QUIET)
    one, two = (duetto.load(run.path, backend=backend) for backend in ("torch", "jax"))
    space, actions = environment.action_space, []
    for obs in observed(environment()):
        action = one.act(obs)
        assert space.contains(action)
        np.testing.assert_allclose(action, two.act(obs), rtol=1e-4, atol=1e-5)
        actions.append(action)
    assert np.ptp(actions, axis=0).max() > 0, "actions that do not depend on what is seen"


@pytest.mark.parametrize(
    ("environment", "hyperparameters", "words"),
    [
        (Wander, {"minibatches": 5}, r"A rollout of 16 steps in 2 environment\(s\) has 32 steps, which cannot be cut"),
        (Wander, {"minibatches": 32}, "32 minibatches of 32 steps have one step each. Choose fewer minibatches."),
    ],
)
def test_what_it_cannot_do_is_refused_in_a_sentence(
    tmp_path: Path, environment: Any, hyperparameters: dict, words: str
):
    with pytest.raises(UsageError, match=words):
        train(tmp_path, small("ppo", **hyperparameters), environment, **QUIET)


# ---------------------------------------------------------------------------------------------------- the log
def test_a_line_of_metrics_says_how_learning_goes(tmp_path: Path):
    run = train(tmp_path, small("ppo", max_grad_norm=0.5), Wander, **QUIET | {"log_every": 32})
    first, second = run.metrics()
    names = {name.removeprefix("learn/") for name in first if name.startswith("learn/")}
    assert names == {
        "agent_gradient_norm",
        "agent_learning_rate",
        "agent_loss",
        "approx_kl",
        "approx_kl_k2",
        "clip_fraction",
        "entropy",
        "explained_variance",
        "policy_loss",
        "updates",
        "value_loss",
    }
    assert (first["learn/updates"], second["learn/updates"]) == (2, 4)
    assert first["learn/explained_variance"] < 1
    assert 0 <= first["learn/clip_fraction"] <= 1
    assert 0 < first["learn/entropy"] <= np.log(4) + 1e-6


@pytest.mark.parametrize(("target_kl", "updates"), [(0.0, 12), (1e9, 12), (1e-9, 2)])
def test_beyond_the_divergence_the_other_epochs_are_left_out(
    tmp_path: Path, backend: str, target_kl: float, updates: int
):
    """Two rollouts, 6 epochs each. The first epoch has 2 minibatches, so it diverges a little: no second follows."""
    algorithm = small("ppo", epochs=6, target_kl=target_kl)
    [line] = train(tmp_path, algorithm, Wander, **QUIET | {"log_every": 64, "backend": backend}).metrics()
    assert line["learn/updates"] == updates


# ---------------------------------------------------------------------------------------------------- evaluation
STOCHASTIC: dict[str, Any] = {"stochastic_evaluation": True, "policy_gain": 1.0}


def test_sampled_evaluations_are_reproducible(tmp_path: Path):
    """Each starts with the same random numbers, whatever was evaluated before; and the run's folder gives it again."""
    results: list[Any] = []

    def look(trainer: Trainer) -> None:
        if trainer.step == 32:
            results.extend(trainer.evaluate().returns.tolist() for _ in range(2))

    options = QUIET | {"evaluate_every": 64, "evaluation_episodes": 4}
    run = train(tmp_path, small("ppo", **STOCHASTIC), "CartPole-v1", callbacks=[look], **options)
    assert results[0] == results[1]
    assert len(set(results[0])) > 1
    again = run.evaluate(episodes=4)
    assert again.mean_return == run.evaluations()[-1]["mean_return"]
    np.testing.assert_array_equal(run.evaluate(episodes=4).returns, again.returns)
    assert not np.array_equal(run.evaluate(episodes=4, seed=5).returns, again.returns)


# ---------------------------------------------------------------------------------------------------- resuming
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
    algorithm = small("ppo", **EVERYTHING_OF_PPO, observation_statistics=statistics)
    stopped = train(tmp_path, algorithm, name="stopped", callbacks=[StopAt(stop_at)], **options)
    assert checkpoints(stopped).steps()[-1] == stop_at
    state = checkpoints(stopped).load_latest().state["memory"]
    assert state["filled"] == stop_at // 2 % 16
    assert bool(len(state["ends"]["time"])) == (
        stop_at in (50, 62)
    )  # after 9 and 15 vector steps of a rollout an episode was cut
    assert_same(train(tmp_path, algorithm, name="whole", **options), stopped.resume())
