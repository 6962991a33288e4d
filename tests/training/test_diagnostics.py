"""Diagnostics: a run that is too short, a run that made no update, a collapsed policy."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from line_environment import Line
from small_runs import AtStart, small, train

from duetto.algorithms import PPO
from duetto.networks.spaces import Box, Dict, Discrete
from duetto.networks.specs import CustomNetwork
from duetto.runs.run import start
from duetto.runs.spec import RunSpec
from duetto.storage.config import RunOptions
from duetto.training.trainer import Trainer

MINE, NUMBERS = CustomNetwork(torch=object), Box((2,), "float32", (-1.0,), (1.0,))


def noted(folder: Path, algorithm: str = "td3", hyperparameters: dict[str, Any] | None = None, **options: Any):
    """What was said before the first step, and how many updates the run made."""
    trainers: list[Trainer] = []
    said: list[str] = []

    def look(trainer: Trainer) -> None:
        trainers.append(trainer)
        said.extend(trainer.notices)

    chosen = small(algorithm, **hyperparameters or {})
    options = {"backend": "torch", "device": "cpu", "threads": 1, "evaluate_every": 0} | options
    start(RunSpec(chosen, "Pendulum-v1", RunOptions(**options), runs_dir=folder), [AtStart(look)])
    return said, trainers[0].learner.updates


class Choosing(Line):
    """Line with two actions."""

    def __init__(self, length: int = 10) -> None:
        super().__init__(length)
        self.action_space = gymnasium.spaces.Discrete(2)

    def step(self, action: Any) -> Any:
        self.time += 1
        return self.see(), 1.0, False, self.time == self.length, {}


CASES: list[tuple[str, dict[str, Any], int, int, str]] = [
    ("td3", {"random_steps": 0}, 1, 31, "learning_starts is 30"),
    ("td3", {"random_steps": 0, "learning_starts": 0, "train_every": 7}, 1, 7, "is 0 and train_every is 7."),
    ("td3", {"random_steps": 0}, 4, 29, "learning_starts is 30"),  # the eighth vector step ends at step 32
    ("ppo", {}, 1, 16, "rollout_steps is 16 in 1 environment(s)"),
    ("ppo", {}, 2, 31, "rollout_steps is 16 in 2 environment(s)"),
]


@pytest.mark.parametrize(("algorithm", "hyperparameters", "num_envs", "first", "because"), CASES)
def test_a_run_that_ends_before_its_first_update_says_so(
    tmp_path: Path, algorithm: str, hyperparameters: dict[str, Any], num_envs: int, first: int, because: str
):
    run = {"algorithm": algorithm, "hyperparameters": hyperparameters, "num_envs": num_envs}
    said, updates = noted(tmp_path, steps=first, **run)
    assert said == []
    assert updates > 0
    [notice], updates = noted(tmp_path, steps=first - num_envs, **run)
    assert notice.startswith(f"{first - num_envs} steps are too few: there will be no update, because ")
    assert updates == 0
    assert because in notice


def test_only_random_actions_are_said_too(tmp_path: Path):
    [notice], updates = noted(tmp_path, steps=30)
    assert notice == (
        "30 steps are too few: there will be no update, because learning_starts is 30, and all actions will be random, "
        "because random_steps is 30. Increase --steps, or lower these options."
    )
    assert updates == 0
    [notice], updates = noted(tmp_path, hyperparameters={"learning_starts": 10}, steps=30)
    assert notice.startswith("30 steps are too few: all actions will be random, because random_steps is 30. Increase")
    assert updates == 20
    assert noted(tmp_path, hyperparameters={"learning_starts": 10}, steps=31)[0] == []


# ---------------------------------------------------------------------------------------------------- looking back
def heard(folder: Path, algorithm: Any, environment: Any, **options: Any) -> list[str]:
    """All that a run said."""
    trainers: list[Trainer] = []
    train(
        folder,
        algorithm,
        environment,
        evaluate_every=0,
        callbacks=[trainers.append, *options.pop("also", [])],
        **options,
    )
    return trainers[0].notices


R2D2 = {"recurrent_size": 4, "burn_in": 12, "unroll": 4, "overlap": 12, "learn_from_start": False, "random_steps": 0}


@pytest.mark.parametrize(
    ("algorithm", "environment", "length", "cause"),
    [
        (
            small("r2d2", **R2D2),
            Choosing,
            12,
            "unless learn_from_start is true, for an episode of burn_in and unroll steps.",
        ),
        (small("r2d2", **R2D2), Choosing, 10**9, ""),
        (
            small("dqn", train_at_episode_end=True),
            Choosing,
            10**9,
            "No episode ended: give the environment a time limit",
        ),
        (small("dqn", train_at_episode_end=True), Choosing, 150, ""),
    ],
)
def test_a_run_that_learned_nothing_says_so_at_its_end(
    tmp_path: Path, algorithm: Any, environment: Any, length: int, cause: str
):
    said = heard(tmp_path, algorithm, environment, environment_options={"length": length})
    found = [notice for notice in said if notice.startswith("The run made no update in 200 steps. ")]
    assert len(found) == bool(cause)
    assert cause in "".join(found)


# ---------------------------------------------------------------------------------------------------- PPO's symptoms
CHOICE, BOX = Discrete(2), Box((1,), "float32", (-1.0,), (1.0,))


@pytest.mark.parametrize(
    ("means", "action", "said"),
    [
        ({"approx_kl": 0.39, "entropy": 0.09}, CHOICE, ""),  # CartPole at a learning rate of 0.1: it learns
        ({"approx_kl": 20.7, "entropy": 0.0057}, CHOICE, "approx_kl is 20.7 (usual"),  # at 1: it does not
        ({"approx_kl": 0.0, "entropy": 2e-32}, CHOICE, "entropy is 0"),
        ({"approx_kl": 0.0, "entropy": 0.0}, Discrete(1), ""),
        ({"approx_kl": 0.0, "entropy": -3.7}, BOX, ""),  # differential: any number
        ({"approx_kl": 0.0, "entropy": -2.0}, Dict((("gear", CHOICE), ("thrust", BOX))), ""),  # so is a sum with one
        ({"approx_kl": 0.0, "entropy": 0.0}, Dict((("gear", CHOICE), ("horn", CHOICE))), "entropy is 0"),
        ({"approx_kl": 78.6, "entropy": 2.3}, BOX, "approx_kl is 78.6"),
        ({"updates": 3.0}, CHOICE, ""),  # a line without an update
    ],
)
def test_ppo_knows_its_symptoms(means: dict[str, float], action: Any, said: str):
    symptom = PPO().symptom(means, action)
    assert said in symptom
    assert bool(said) == bool(symptom)


@pytest.mark.parametrize("learning_rate", [3e-3, 1e6])
def test_a_policy_that_learns_no_more_is_said_once(tmp_path: Path, learning_rate: float):
    said: list[str] = []

    def listen(trainer: Trainer) -> None:
        said[:] = trainer.notices

    algorithm = small("ppo", learning_rate=learning_rate, rollout_steps=64)
    run = train(tmp_path, algorithm, "CartPole-v1", steps=512, evaluate_every=0, callbacks=[listen])
    assert run.metrics()[-1]["step"] == 512
    if learning_rate < 1:
        assert said == []
    else:
        [notice] = said
        assert re.match("Step 75: learn/(approx_kl|entropy) is ", notice)
        assert "lower learning_rate" in notice
