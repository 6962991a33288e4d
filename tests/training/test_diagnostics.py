"""Diagnostics: a run that is too short, a run that made no update, a collapsed policy."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from line_environment import Line
from small_runs import small, train

from duetto.algorithms import PPO
from duetto.networks.spaces import Box, Dict, Discrete
from duetto.training.trainer import Trainer


def notices_and_updates(
    folder: Path, algorithm: Any = None, environment: Any = "Pendulum-v1", **options: Any
) -> tuple[Any, int]:
    """Train; return the run's notices and its number of updates."""
    trainers: list[Trainer] = []
    name = f"run-{len(list(folder.iterdir()))}"
    train(folder, algorithm, environment, name=name, evaluate_every=0, callbacks=[trainers.append], **options)
    return trainers[0].notices, trainers[0].learner.updates


@pytest.mark.parametrize(
    ("algorithm", "num_envs", "first", "because"),
    [
        (small(random_steps=0), 4, 29, "learning_starts is 30"),  # the vector step ends at step 32
        (small("ppo"), 2, 31, "rollout_steps is 16 in 2 environment(s)"),
    ],
)
def test_a_run_that_ends_before_its_first_update_warns(
    tmp_path: Path, algorithm: Any, num_envs: int, first: int, because: str
):
    said, updates = notices_and_updates(tmp_path, algorithm, steps=first, num_envs=num_envs)
    assert said == []
    assert updates > 0
    [notice], updates = notices_and_updates(tmp_path, algorithm, steps=first - num_envs, num_envs=num_envs)
    assert notice.startswith(f"{first - num_envs} steps are too few: there will be no update, because ")
    assert updates == 0
    assert because in notice


def test_a_run_with_only_random_actions_warns(tmp_path: Path):
    [notice], updates = notices_and_updates(tmp_path, steps=30)
    assert notice == (
        "30 steps are too few: there will be no update, because learning_starts is 30, and all actions will be random, "
        "because random_steps is 30. Increase --steps, or lower these options."
    )
    assert updates == 0


class Choosing(Line):
    """Line with two actions."""

    def __init__(self, length: int = 10) -> None:
        super().__init__(length)
        self.action_space = gymnasium.spaces.Discrete(2)

    def step(self, action: Any) -> Any:
        self.time += 1
        return self.see(), 1.0, False, self.time == self.length, {}


R2D2 = {"recurrent_size": 4, "burn_in": 12, "unroll": 4, "overlap": 12, "learn_from_start": False, "random_steps": 0}


@pytest.mark.parametrize(
    ("algorithm", "length", "cause"),
    [
        (small("r2d2", **R2D2), 12, "without learn_from_start also wait for an episode of burn_in + unroll steps."),
        (small("dqn", train_at_episode_end=True), 10**9, "No episode ended: give the environment a time limit"),
        (small("dqn", train_at_episode_end=True), 150, ""),  # one episode ends
    ],
)
def test_a_run_without_an_update_warns_at_its_end(tmp_path: Path, algorithm: Any, length: int, cause: str):
    said, _ = notices_and_updates(tmp_path, algorithm, Choosing, environment_options={"length": length})
    found = [notice for notice in said if notice.startswith("The run made no update in 200 steps. ")]
    assert len(found) == bool(cause)
    assert cause in "".join(found)


# ---------------------------------------------------------------------------------------------------- PPO's symptoms
CHOICE, BOX = Discrete(2), Box((1,), "float32", (-1.0,), (1.0,))


@pytest.mark.parametrize(
    ("means", "action", "said"),
    [
        ({"approx_kl": 0.39, "entropy": 0.09}, CHOICE, ""),  # CartPole with learning rate 0.1: it learns
        ({"approx_kl": 20.7, "entropy": 0.0057}, CHOICE, "approx_kl is 20.7 (usual"),  # with 1: it does not
        ({"approx_kl": 0.0, "entropy": 2e-32}, CHOICE, "entropy is 0"),
        ({"approx_kl": 0.0, "entropy": 0.0}, Discrete(1), ""),
        ({"approx_kl": 0.0, "entropy": -3.7}, BOX, ""),  # differential entropy can be negative
        ({"approx_kl": 0.0, "entropy": -2.0}, Dict((("gear", CHOICE), ("thrust", BOX))), ""),
        ({"updates": 3.0}, CHOICE, ""),  # a line without an update
    ],
)
def test_ppo_reports_unusual_kl_and_entropy(means: dict[str, float], action: Any, said: str):
    symptom = PPO().symptom(means, action)
    assert said in symptom
    assert bool(said) == bool(symptom)


def test_a_collapsed_policy_is_reported_once(tmp_path: Path):
    algorithm = small("ppo", learning_rate=1e6, rollout_steps=64)
    [notice], _ = notices_and_updates(tmp_path, algorithm, "CartPole-v1", steps=512)
    assert re.match("Step 75: learn/(approx_kl|entropy) is ", notice)
    assert "lower learning_rate" in notice
