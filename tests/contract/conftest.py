from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from contract_cases import Runs

from duetto.tools.cli import main


class Result(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str


Command = Callable[..., Result]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """Return a function that runs `duetto` in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DUETTO_KEY_FILE", str(tmp_path / "key"))

    def call(text: str, *arguments: str | Path) -> Result:
        with pytest.raises(SystemExit) as ended:
            main([*shlex.split(text), *map(str, arguments)])
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return Result(int(ended.value.code or 0), out, err)

    return call


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Train each case once per session. Tests must not change the runs."""
    return Runs(tmp_path_factory.mktemp("trained"))
