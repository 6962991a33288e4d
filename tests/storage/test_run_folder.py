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

HOLD = """
import os, sys
from pathlib import Path
from duetto.storage.run_folder import folder_lock
with folder_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def holder(folder: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOLD, str(folder)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process


def test_a_living_holder_is_named_and_a_killed_one_holds_nothing(tmp_path: Path):
    with holder(tmp_path) as process:
        with pytest.raises(RunInUseError, match=f"process {process.pid} on {socket.gethostname()}.*kill {process.pid}"):
            folder_lock(tmp_path).__enter__()
        process.kill()
        process.wait()
        (tmp_path / ".lock").write_text("a text longer than the next one" * 5)
        with folder_lock(tmp_path):
            assert (tmp_path / ".lock").read_text() == f"{os.getpid()} {socket.gethostname()}\n"


def test_it_is_released_after_an_error_and_can_be_taken_again(tmp_path: Path):
    with pytest.raises(ZeroDivisionError), folder_lock(tmp_path):
        raise ZeroDivisionError
    assert (tmp_path / ".lock").read_text() == ""
    with folder_lock(tmp_path), pytest.raises(RunInUseError):
        folder_lock(tmp_path).__enter__()


def test_a_folder_that_is_not_there_is_an_error_for_the_user(tmp_path: Path):
    with pytest.raises(DuettoError, match="No such file"):
        folder_lock(tmp_path / "none").__enter__()
