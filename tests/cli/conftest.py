from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from duetto.cli import main

SMALL_RUN = shlex.split(
    "--hidden 16 16 --backend torch --device cpu --threads 1 --evaluate-every 40 --evaluation-episodes 2 "
    "--checkpoint-every 30 --log-every 10"
)
SMALL = [*SMALL_RUN, *shlex.split("--batch-size 8 --random-steps 20 --learning-starts 20 --replay-capacity 100")]
SMALL_PPO = [*SMALL_RUN, *shlex.split("--rollout-steps 10 --epochs 2 --minibatches 2")]


class Result(NamedTuple):
    """What a command left on the terminal."""

    code: int
    out: str
    err: str


Command = Callable[..., Result]


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
