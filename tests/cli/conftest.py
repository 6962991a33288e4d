from __future__ import annotations

from pathlib import Path

import pytest
from commands import SMALL, SMALL_PPO, Command, Result, called

from duetto.tools.cli import main


@pytest.fixture
def duetto(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """Call `duetto ARGUMENTS ...` as the installed command does, in an empty folder."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)
    return called(capsys)


@pytest.fixture
def train(duetto: Command) -> Command:
    """Call `duetto train td3 Pendulum-v1` with small networks and the given arguments."""

    def call(*arguments: str, environment: str = "Pendulum-v1", algorithm: str = "td3") -> Result:
        small = SMALL_PPO if algorithm == "ppo" else SMALL
        return duetto("train", algorithm, environment, "--steps", "60", *small, *arguments)

    return call


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train 60 steps with checkpoints at steps 30 and 60. Tests must not change the run."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.raises(SystemExit):
        main(["train", "td3", "Pendulum-v1", "--steps", "60", *SMALL, "--runs-dir", str(folder), "--name", "made"])
    return folder / "made"
