"""A run whose environment fails: the message, the traceback and the kept checkpoint."""

from __future__ import annotations

import os
from typing import Any

import gymnasium
import numpy as np
import pytest
from commands import Command
from line_environment import Line

RUN = "runs/td3-Failing-v0-s0"
KEPT = f"The run on Failing-v0 stopped at step 44; its checkpoint of step 30 is kept for evaluate and resume in {RUN}."


class Failing(Line):
    """Fails in its 45th step. The environment variable FAILING chooses how: "dies" or "raises"."""

    def step(self, action: np.ndarray) -> Any:
        if self.life == 44:
            how = os.environ.get("FAILING")
            if how == "dies":
                os._exit(9)
            if how == "raises":
                raise LookupError("nothing there")
        return super().step(action)


if "Failing-v0" not in gymnasium.registry:
    gymnasium.register("Failing-v0", entry_point="test_environments_that_fail:Failing")


def test_raising_environment_stops_run_and_keeps_checkpoint(
    train: Command, duetto: Command, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("FAILING", "raises")
    code, _, err = train(environment="Failing-v0")
    sentence, *trace = err.splitlines()
    assert code == 1
    said = "step raised LookupError: nothing there. Correct the environment."
    assert sentence == f"duetto: Failing-v0, environment 0, vector step 45: {said} {KEPT}"
    assert "test_environments_that_fail.py" in trace[0]
    assert trace[-1] == "LookupError: nothing there"
    monkeypatch.delenv("FAILING")
    assert duetto("resume", RUN).code == 0


def test_error_names_the_evaluation_environment(train: Command, duetto: Command, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FAILING", "")
    assert train("--evaluate-every", "0", environment="Failing-v0").code == 0
    monkeypatch.setenv("FAILING", "raises")
    code, _, err = duetto("evaluate", RUN, "--episodes", "50")
    assert (code, err.splitlines()[0][:67]) == (
        1,
        "duetto: Failing-v0, environment 0, vector step 45: step raised Look",
    )
    code, _, err = train("--evaluation-episodes", "50", "--name", "evaluated", environment="Failing-v0")
    assert code == 1
    assert err.startswith("duetto: Failing-v0 (evaluation), environment 0, vector step 45: step raised LookupError")
    assert "The run on Failing-v0 stopped at step 0, before its first checkpoint." in err


def test_dead_environment_process_stops_run_and_keeps_checkpoint(train: Command, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FAILING", "dies")
    code, _, err = train("--vectorization", "subprocess", environment="test_environments_that_fail:Failing-v0")
    assert code == 1
    said = "its process ended with exit code 9. Look for the cause in the environment and the code that it calls; its "
    assert f"Failing-v0, environment 0, vector step 45: {said}output is above. The run on" in err
    assert "stopped at step 44; its checkpoint of step 30 is kept" in err
