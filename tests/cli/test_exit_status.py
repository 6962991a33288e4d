"""The exit status after a signal: 128 + its number, so that `duetto train ... && next` stops."""

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
from line_environment import Line

RUN = "runs/td3-Signaling-v0-s0"


class Signaling(Line):
    """Sends a signal to a process once. The file `signal` has its id, the signal and the step: "PROCESS SIGNAL AT"."""

    def step(self, action: np.ndarray) -> Any:
        if (file := Path(os.environ["SIGNAL"])).exists():
            process, number, at = map(int, file.read_text().split())
            if self.life == at - 1:
                file.unlink()
                os.kill(process, number)
        return super().step(action)

    def state_dict(self) -> dict[str, Any]:
        return {"life": self.life, "time": self.time}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.life, self.time = state["life"], state["time"]


if "Signaling-v0" not in gymnasium.registry:
    gymnasium.register("Signaling-v0", entry_point="test_exit_status:Signaling")


@pytest.fixture(autouse=True)
def send_signal_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Return a function that makes the environment send a signal to this process in step `at`."""

    def send_signal_at(at: int, number: int = signal.SIGTERM) -> None:
        (tmp_path / "signal").write_text(f"{os.getpid()} {int(number)} {at}")

    monkeypatch.setenv("SIGNAL", str(tmp_path / "signal"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *sys.path]))
    return send_signal_at


@pytest.fixture
def run(train: Command) -> Command:
    """`duetto train` on the environment, without evaluations."""
    return lambda *options: train("--evaluate-every", "0", *options, environment="Signaling-v0")


def test_signal_sets_exit_status_of_train_and_resume(run: Command, duetto: Command, send_signal_at: Any):
    send_signal_at(45)
    assert run().code == 143
    send_signal_at(50)
    again = duetto("resume", RUN)
    assert (again.code, "Stopped at step" in again.out) == (143, True)
    assert duetto("resume", RUN).code == 0
    send_signal_at(45)
    assert run("--seeds", "1-2").code == 143


@pytest.mark.parametrize("command", ["sweep", "tune"])
def test_signal_sets_exit_status_of_sweep_and_tune(duetto: Command, send_signal_at: Any, command: str):
    send_signal_at(45)
    result = duetto(command, "td3", "Signaling-v0", "--steps", "100000", *SMALL, "--seeds", "1")
    assert (result.code, "Stopped. Continue with the same command." in result.out) == (143, True)


@pytest.mark.parametrize("command", ["evaluate", "demos"])
def test_signal_sets_exit_status_of_evaluate_and_demos(
    run: Command, duetto: Command, send_signal_at: Any, command: str
):
    assert run().code == 0
    send_signal_at(5, signal.SIGINT)
    recorded = ["record", "Signaling-v0", "--output", "recorded", "--expert"] if command == "demos" else []
    result = duetto(command, *recorded, RUN)
    assert (result.code, result.err) == (130, "duetto: interrupted.\n")
    assert not Path("recorded").exists()
