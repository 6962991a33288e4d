"""Evaluations: whole episodes in separate environments."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from line_environment import Components, Line, zero_actions
from small_runs import BRIEF, CrashAt, CrashError, differences, outcome, small, train

import duetto
from duetto import environments
from duetto.errors import UsageError
from duetto.training import evaluation as evaluation_module
from duetto.training.evaluation import evaluate


def test_evaluation_leaves_training_unchanged(tmp_path: Path):
    """Evaluations change neither normalization nor exploration nor unfinished episodes."""
    algorithm = small(normalize_observations="collected", exploration="ou", prioritized=True)
    with_it, without = (outcome(train(tmp_path, algorithm, Components, evaluate_every=every)) for every in (35, 0))
    assert len(with_it["evaluations"]) == 7  # 0, 35 .. 175, and 200, the end
    assert with_it["state"].pop("evaluations")["best"] is not None
    assert without["state"].pop("evaluations")["best"] is None
    for part in ("state", "memory", "metrics"):
        assert differences(with_it[part], without[part]) == []


def test_environment_instance_is_evaluated_on_a_copy(tmp_path: Path):
    environment = gymnasium.make("Pendulum-v1", **BRIEF)
    run = train(tmp_path, environment=environment, steps=60)
    by_id = train(tmp_path, steps=60)
    assert differences(outcome(run)["memory"], outcome(by_id)["memory"]) == []
    environment.unwrapped.lock = threading.Lock()
    sentence = r"Pendulum-v1 cannot be copied for evaluations .*Or train without evaluations: evaluate_every=0\.$"
    with pytest.raises(UsageError, match=sentence):
        train(tmp_path, environment=environment)


def test_an_evaluation_whose_episodes_do_not_end_warns(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(evaluation_module, "PATIENCE", 40)
    told: list[str] = []
    stepper = environments.make(Line, num_envs=2, kwargs={"length": 39})
    evaluate(zero_actions, stepper, 6, seed=0, tell=told.append)  # 117 steps, but no episode is longer than 39
    assert caplog.messages == []
    longer = environments.make(Line, num_envs=2, kwargs={"length": 50})
    for _ in range(2):
        evaluate(zero_actions, longer, 2, seed=0, tell=told.append)
    message, _ = caplog.messages
    assert message.startswith(
        "Line: no episode has ended for 100,000 steps, and an evaluation waits until its episodes end."
    )
    assert "evaluate_every=0" in message


EPISODE_LENGTHS = (3, 2, 4)  # of successive episodes


class SuccessEnv(gymnasium.Env):
    """Its episodes succeed, fail and report nothing in turn; success before the last step does not count."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, silent: bool = False) -> None:
        self.silent, self.episode = silent, -1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        if seed is not None and seed >= 100:  # an evaluation seeds each episode
            self.episode = seed - 101
        self.episode, self.time = self.episode + 1, 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        over = self.time == EPISODE_LENGTHS[self.episode % 3]
        value = {0: np.float32(1.0), 1: False}.get(self.episode % 3)
        info = {} if over and (value is None or self.silent) else {"success": value if over else True}
        return np.zeros(1, np.float32), 1.0, False, over, {} if self.silent else info


def test_without_success_in_info_there_is_no_success_rate(tmp_path: Path):
    run = train(tmp_path, environment=partial(SuccessEnv, silent=True), steps=60, evaluate_every=30)
    assert all("success_rate" not in row for row in [*run.evaluations(), *run.metrics()])
    assert all("train/success_rate" not in row for row in run.metrics())
    assert "success" not in str(run.evaluate(3))


def test_success_rate_is_logged_and_survives_a_kill(tmp_path: Path):
    options: dict[str, Any] = {
        "environment": SuccessEnv,
        "steps": 90,
        "evaluate_every": 30,
        "evaluation_episodes": 4,
    }
    whole = train(tmp_path / "a", **options)
    # Of each evaluation's four episodes two succeed, one fails, and one reports nothing.
    assert [row["success_rate"] for row in whole.evaluations()] == [pytest.approx(2 / 3)] * 4
    lines = [line["train/success_rate"] for line in whole.metrics()]
    assert lines
    assert all(0.4 < rate < 0.6 for rate in lines)  # half of the reporting episodes succeed
    result = whole.evaluate(2)
    assert (result.success_rate, str(result)) == (0.5, "2.5 ± 0.5 over 2 episodes, success 0.50")
    assert result.to_dict()["success_rate"] == 0.5
    with pytest.raises(CrashError):
        train(tmp_path / "b", **options, callbacks=[CrashAt(70)])
    killed = duetto.Run(tmp_path / "b" / whole.path.name, environment=SuccessEnv).resume(progress=False)
    own = [name for name in whole.evaluations()[0] if name != "seconds"]
    assert [[row[name] for name in own] for row in killed.evaluations()] == [
        [row[name] for name in own] for row in whole.evaluations()
    ]
    assert [line["train/success_rate"] for line in killed.metrics()] == lines
