"""The lock of a run's folder: one process at a time."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from duetto.errors import DuettoError, RunInUseError
from duetto.storage.run_folder import folder_lock

LOCK_PROGRAM = """
import os, sys
from pathlib import Path
from duetto.storage.run_folder import folder_lock
with folder_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def lock_holder(folder: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", LOCK_PROGRAM, str(folder)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process


def test_lock_names_live_process_and_ignores_killed_one(tmp_path: Path):
    with lock_holder(tmp_path) as process:
        with pytest.raises(RunInUseError, match=f"process {process.pid} on {socket.gethostname()}.*kill {process.pid}"):
            folder_lock(tmp_path).__enter__()
        process.kill()
        process.wait()
        (tmp_path / ".lock").write_text("a text longer than the next one" * 5)
        with folder_lock(tmp_path):
            assert (tmp_path / ".lock").read_text() == f"{os.getpid()} {socket.gethostname()}\n"


def test_lock_is_released_after_an_error(tmp_path: Path):
    with pytest.raises(ZeroDivisionError), folder_lock(tmp_path):
        raise ZeroDivisionError
    assert (tmp_path / ".lock").read_text() == ""
    with folder_lock(tmp_path), pytest.raises(RunInUseError):
        folder_lock(tmp_path).__enter__()


def test_lock_of_missing_folder_is_a_duetto_error(tmp_path: Path):
    with pytest.raises(DuettoError, match="No such file"):
        folder_lock(tmp_path / "none").__enter__()
