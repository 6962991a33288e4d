"""A run whose environment fails: the sentence, its traceback, where the last checkpoint is; and Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from commands import SMALL, Command
from gymnasium.spaces import Box

from duetto.runs.run import Run
from duetto.training.trainer import Trainer

RUN = "runs/td3-Failing-v0-s0"
KEPT = f"The run on Failing-v0 stopped at step 44; its checkpoint of step 30 is kept for evaluate and resume in {RUN}."


class Failing(gymnasium.Env):
    """Fails in its 45th step, in the way that the environment variable FAILING names."""

    def __init__(self) -> None:
        self.observation_space = Box(-1, 1, (2,), np.float32)
        self.action_space = Box(-1, 1, (1,), np.float32)
        self.life = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return np.zeros(2, np.float32), {}

    def step(self, action: np.ndarray) -> Any:
        self.life += 1
        if self.life == 45:
            how = os.environ.get("FAILING")
            while how == "hang":
                time.sleep(60)
            if how == "dies":
                os._exit(9)
            if how == "raises":
                raise LookupError("nothing there")
            if how == "gives nothing":
                return None
        return np.zeros(2, np.float32), 0.0, False, self.life % 10 == 0, {}


if "Failing-v0" not in gymnasium.registry:
    gymnasium.register("Failing-v0", entry_point="test_environments_that_fail:Failing")


def test_one_that_raises_stops_the_run_and_keeps_its_checkpoint(
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


def test_one_that_gives_nothing_is_a_mistake_in_the_call(train: Command, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FAILING", "gives nothing")
    code, _, err = train(environment="Failing-v0")
    assert code == 2
    assert err.startswith("duetto: Failing-v0, environment 0, vector step 45: step gave None. Return observation")
    assert err.endswith(f"is kept for evaluate and resume in {RUN}.\n")


def test_that_it_is_the_one_for_evaluation_is_said(train: Command, duetto: Command, monkeypatch: pytest.MonkeyPatch):
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


def test_a_process_that_dies_stops_the_run_and_keeps_its_checkpoint(train: Command, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FAILING", "dies")
    code, _, err = train("--vectorization", "subprocess", environment="test_environments_that_fail:Failing-v0")
    assert code == 1
    said = "its process ended with exit code 9. Look for the cause in the environment and the code that it calls; its "
    assert f"Failing-v0, environment 0, vector step 45: {said}output is above. The run on" in err
    assert "stopped at step 44; its checkpoint of step 30 is kept" in err


def test_the_limit_is_the_runs_option(train: Command, monkeypatch: pytest.MonkeyPatch):
    seen: list[float] = []
    run = Trainer.run

    def running(self: Trainer, callbacks: Any) -> None:
        seen.append(self.stepper.engine._timeout)
        run(self, callbacks)

    monkeypatch.setattr(Trainer, "run", running)
    options = ("--vectorization", "subprocess", "--worker-timeout", "7.5")
    assert train(*options, environment="test_environments_that_fail:Failing-v0").code == 0
    assert seen == [7.5]
    assert "worker_timeout: 7.5" in next(Path("runs").glob("*/config.yaml")).read_text("utf-8")
    assert "worker_timeout is -1.0; it must be at least 0" in train("--worker-timeout", "-1").err


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for processes in /proc")
def test_two_ctrl_c_end_a_run_whose_environment_hangs(tmp_path: Path):
    program = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    program += "from duetto.tools.cli import main; main()"
    environment = "test_environments_that_fail:Failing-v0"
    options = [*SMALL, "--vectorization", "subprocess", "--num-envs", "2", "--evaluate-every", "0", "--name", "hangs"]
    command = [sys.executable, "-c", program, "train", "td3", environment, *options, "--runs-dir", str(tmp_path)]
    variables = os.environ | {"FAILING": "hang", "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, env=variables, start_new_session=True, **pipes) as process:
        wait_for(lambda: bool(list(tmp_path.glob("hangs/checkpoints/step-*60"))), process)
        workers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        time.sleep(1)  # 44 steps of two environments are over
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.5)
        assert process.poll() is None
        asked = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert time.monotonic() - asked < 8
    assert (process.returncode, errors) == (128 + signal.SIGINT, "duetto: interrupted.\n")
    assert len(workers) == 2
    assert not alive(workers)
    assert Run(tmp_path / "hangs").agent("last").step == 60


def wait_for(happened: Any, process: subprocess.Popen[str]) -> None:
    while not happened():
        assert process.poll() is None
        time.sleep(0.02)


def alive(pids: list[str]) -> bool:
    """Whether a process is left after some seconds, in which orphans have time to end."""
    deadline = time.monotonic() + 5
    while any(Path("/proc", pid).exists() for pid in pids):
        if time.monotonic() > deadline:
            return True
        time.sleep(0.05)
    return False
