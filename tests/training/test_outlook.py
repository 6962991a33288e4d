"""What a run says about itself before it is too late: too few steps, a policy that learns no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_runs import StopAt, small, train

from duetto.algorithms import PPO
from duetto.networks.spaces import Box, Discrete
from duetto.runs.run import Run, start
from duetto.storage.config import RunOptions
from duetto.training.session import Session


def noted(folder: Path, algorithm: str = "td3", hyperparameters: dict[str, Any] | None = None, **options: Any):
    """What was said before the first step, and how many updates the run made."""
    sessions: list[Session] = []
    said: list[str] = []

    def look(session: Session) -> None:
        sessions.append(session)
        said.extend(session.notices)

    chosen = small(algorithm, **hyperparameters or {})
    options = {"backend": "torch", "device": "cpu", "threads": 1, "evaluate_every": 0} | options
    start(chosen, "Pendulum-v1", RunOptions(**options), runs_dir=folder, on_start=look)
    return said, sessions[0].learner.updates


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
        "because random_steps is 30. Give more --steps, or set these lower."
    )
    assert updates == 0
    [notice], updates = noted(tmp_path, hyperparameters={"learning_starts": 10}, steps=30)
    assert notice.startswith("30 steps are too few: all actions will be random, because random_steps is 30. Give")
    assert updates == 20
    assert noted(tmp_path, hyperparameters={"learning_starts": 10}, steps=31)[0] == []


def test_a_run_that_goes_on_says_it_only_of_what_is_to_come(tmp_path: Path):
    said: list[str] = []
    run = train(tmp_path, small("ppo"), steps=15, evaluate_every=0)
    run.resume(on_start=lambda session: said.extend(session.notices))
    assert said == []  # nothing is left to do
    run.resume(steps=16, on_start=lambda session: said.extend(session.notices))
    assert said == []
    assert [line["learn/updates"] for line in Run(run.path).metrics()] == [2]  # 16 steps: the update is made
    stopped = train(tmp_path, small("ppo"), steps=15, evaluate_every=0, callbacks=[StopAt(5)])
    stopped.resume(on_start=lambda session: said.extend(session.notices))
    assert len(said) == 1


# ---------------------------------------------------------------------------------------------------- PPO's symptoms
CHOICE, BOX = Discrete(2), Box((1,), "float32", (-1.0,), (1.0,))


@pytest.mark.parametrize(
    ("means", "action", "said"),
    [
        ({"approx_kl": 0.39, "entropy": 0.09}, CHOICE, ""),  # CartPole at a learning rate of 0.1: it learns
        ({"approx_kl": 20.7, "entropy": 0.0057}, CHOICE, "20.7 nats from the one that collected"),  # at 1: it does not
        ({"approx_kl": 0.0, "entropy": 2e-32}, CHOICE, "entropy is 0"),
        ({"approx_kl": 0.0, "entropy": -3.7}, BOX, ""),  # differential: any number
        ({"approx_kl": 78.6, "entropy": 2.3}, BOX, "78.6 nats"),
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

    def listen(session: Session) -> None:
        said[:] = session.notices

    algorithm = small("ppo", learning_rate=learning_rate, rollout_steps=64)
    run = train(tmp_path, algorithm, "CartPole-v1", steps=500, evaluate_every=0, callbacks=[listen])
    assert run.metrics()[-1]["step"] == 500
    if learning_rate < 1:
        assert said == []
    else:
        [notice] = said
        assert notice.startswith("Step 75: The policy is ")
        assert "lower learning_rate" in notice
