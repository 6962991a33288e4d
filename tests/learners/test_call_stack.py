"""The call stack from `duetto train` to TD3's target has few files and calls, so a reader can follow it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import duetto
from duetto.algorithms import td3
from duetto.functional import returns
from duetto.tools import cli

SOURCE = str(Path(duetto.__file__).parent)
COMMAND = "duetto train td3 Pendulum-v1 --steps 40 --random-steps 10 --learning-starts 10 --hidden 8 --batch-size 4"
LIMITS = {"torch": (8, 15), "jax": (9, 16)}  # (files, calls)


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_call_stack_from_command_to_target_is_short(backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    stacks: list[list[str]] = []

    def record_stack(*args: object) -> object:
        frame, files = sys._getframe(), [returns.__file__]
        while frame := frame.f_back:
            files.append(frame.f_code.co_filename)
        stacks.append([file for file in files if file.startswith(SOURCE)])
        return returns.bootstrap(*args)

    monkeypatch.setattr(td3, "bootstrap", record_stack)
    monkeypatch.setattr(sys, "argv", [*COMMAND.split(), "--backend", backend, "--runs-dir", str(tmp_path)])
    with pytest.raises(SystemExit):
        sys.exit(cli.main())
    files, calls = set(stacks[0]), len(stacks[0])
    most_files, most_calls = LIMITS[backend]
    assert len(files) <= most_files, files
    assert calls <= most_calls, stacks[0]
