"""The exit status of a command that a signal ends: 128 + its number, so that `duetto train ... && next` stops."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from commands import SMALL, Command
from gymnasium.spaces import Box

RUN = "runs/td3-Signaling-v0-s0"
STOPPED = "Stopped at step {}. Continue with: duetto resume " + RUN


class Signaling(gymnasium.Env):
    """In its step number AT, sends a process a signal, once: `signal` is a file "PROCESS SIGNAL AT"."""

    def __init__(self) -> None:
        self.observation_space, self.action_space = Box(-1, 1, (2,), np.float32), Box(-1, 1, (1,), np.float32)
        self.life = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return np.zeros(2, np.float32), {}

    def step(self, action: np.ndarray) -> Any:
        self.life += 1
        if (file := Path(os.environ["SIGNAL"])).exists():
            process, number, at = map(int, file.read_text().split())
            if self.life == at:
                file.unlink()
                os.kill(process, number)
        return np.zeros(2, np.float32), 0.0, False, self.life % 10 == 0, {}

    def state_dict(self) -> dict[str, Any]:
        return {"life": self.life}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.life = state["life"]


if "Signaling-v0" not in gymnasium.registry:
    gymnasium.register("Signaling-v0", entry_point="test_exit_status:Signaling")


@pytest.fixture(autouse=True)
def comes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Has a signal come in an environment's step."""

    def comes(at: int, number: int = signal.SIGTERM) -> None:
        (tmp_path / "signal").write_text(f"{os.getpid()} {int(number)} {at}")

    monkeypatch.setenv("SIGNAL", str(tmp_path / "signal"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *sys.path]))
    return comes


@pytest.fixture
def run(train: Command) -> Command:
    """`duetto train` on the environment, without evaluations."""
    return lambda *options: train("--evaluate-every", "0", *options, environment="Signaling-v0")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_that_ends_a_run_gives_its_number(run: Command, comes: Any, number: int, code: int):
    comes(45, number)
    result = run()
    assert (result.code, result.err) == (code, "")
    assert STOPPED.format(45) in result.out


def test_resume_and_several_seeds_give_it_too(run: Command, duetto: Command, comes: Any):
    comes(45)
    assert run().code == 143
    comes(50)
    again = duetto("resume", RUN)
    assert (again.code, "Stopped at step" in again.out) == (143, True)
    assert duetto("resume", RUN).code == 0
    comes(45)
    assert run("--seeds", "1-2").code == 143


@pytest.mark.parametrize("command", ["sweep", "tune"])
def test_a_sweep_and_a_study_give_it_too(duetto: Command, comes: Any, command: str):
    comes(45)
    result = duetto(command, "td3", "Signaling-v0", "--steps", "100000", *SMALL, "--seeds", "1")
    assert (result.code, "Stopped. Continue with the same command." in result.out) == (143, True)


@pytest.mark.parametrize("command", ["evaluate", "demos"])
def test_a_command_without_checkpoints_gives_it_too(run: Command, duetto: Command, comes: Any, command: str):
    assert run().code == 0
    comes(5, signal.SIGINT)
    recorded = ["record", "Signaling-v0", "--output", "recorded", "--expert"] if command == "demos" else []
    result = duetto(command, *recorded, RUN)
    assert (result.code, result.err) == (130, "duetto: interrupted.\n")
    assert not Path("recorded").exists()
