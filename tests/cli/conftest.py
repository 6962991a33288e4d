from __future__ import annotations

from pathlib import Path

import pytest
from commands import SMALL, SMALL_PPO, Command, Result

from duetto.tools.cli import main


@pytest.fixture
def duetto(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """Calls `duetto ARGUMENTS ...` as the installed command does, in a folder of its own."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str | Path) -> Result:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        code = ended.value.code
        assert isinstance(code, int)
        assert "Traceback" not in captured.out + captured.err
        return Result(code, captured.out, captured.err)

    return call


@pytest.fixture
def train(duetto: Command) -> Command:
    """`duetto train td3 Pendulum-v1` with small networks, and with what else is asked for."""

    def call(*arguments: str, environment: str = "Pendulum-v1", algorithm: str = "td3") -> Result:
        small = SMALL_PPO if algorithm == "ppo" else SMALL
        return duetto("train", algorithm, environment, "--steps", "60", *small, *arguments)

    return call
