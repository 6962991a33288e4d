import gc
import os
import socket
import subprocess
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from duetto.errors import DuettoError, RunInUseError
from duetto.storage.lock import FolderLock

HOLD = """
import os, sys
from pathlib import Path
from duetto.storage.lock import FolderLock
with FolderLock(Path(sys.argv[1])):
    {inside}
    print("held", flush=True)
    sys.stdin.read()
"""
# The worker says when it runs: until then it may still hold what the fork copied.
FORK = """r, w = os.pipe()
    if os.fork() == 0: os.write(w, b"x"); sys.stdin.read(); os._exit(0)
    os.read(r, 1)"""


@contextmanager
def holder(folder: Path, inside: str = "pass") -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOLD.format(inside=inside), str(folder)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:  # its end closes stdin, which ends forks too
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process


def test_a_living_holder_is_named_and_a_killed_one_holds_nothing(tmp_path: Path):
    with holder(tmp_path) as process:
        with pytest.raises(RunInUseError, match=f"process {process.pid} on {socket.gethostname()}.*kill {process.pid}"):
            FolderLock(tmp_path).__enter__()
        process.kill()
        process.wait()
        (tmp_path / ".lock").write_text("a text longer than the next one" * 5)
        with FolderLock(tmp_path):
            assert (tmp_path / ".lock").read_text() == f"{os.getpid()} {socket.gethostname()}\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_worker_that_outlives_the_holder_holds_nothing(tmp_path: Path):
    with holder(tmp_path, FORK) as process:
        process.kill()
        process.wait()
        with FolderLock(tmp_path):
            pass


def test_one_process_cannot_hold_it_twice(tmp_path: Path):
    with FolderLock(tmp_path):
        with pytest.raises(RunInUseError, match=f"process {os.getpid()}"):
            FolderLock(tmp_path).__enter__()
        with pytest.raises(RunInUseError):  # the refused attempt did not let go of it
            FolderLock(tmp_path).__enter__()


def test_it_is_released_after_an_error_and_can_be_taken_again(tmp_path: Path):
    lock = FolderLock(tmp_path)
    with pytest.raises(ZeroDivisionError), lock:
        raise ZeroDivisionError
    assert (tmp_path / ".lock").read_text() == ""
    with lock, pytest.raises(RunInUseError):
        FolderLock(tmp_path).__enter__()


def test_a_holder_that_has_not_written_its_name_yet(tmp_path: Path):
    with FolderLock(tmp_path):
        (tmp_path / ".lock").write_text("")
        with pytest.raises(RunInUseError, match="another process"):
            FolderLock(tmp_path).__enter__()


def test_a_folder_that_is_not_there_is_an_error_for_the_user(tmp_path: Path):
    with pytest.raises(DuettoError, match="No such file"):
        FolderLock(tmp_path / "none").__enter__()


def test_a_disk_that_is_gone_hides_no_error_and_keeps_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def gone(descriptor: int, length: int) -> None:
        raise OSError(5, "Input/output error")

    def work() -> None:
        with FolderLock(tmp_path):
            monkeypatch.setattr(os, "ftruncate", gone)
            raise ValueError("the run's own")

    with pytest.raises(ValueError, match="the run's own"):
        work()
    monkeypatch.undo()
    with FolderLock(tmp_path):
        pass


def test_a_lock_that_was_let_go_is_kept_by_nobody(tmp_path: Path):
    """Each was by what every fork calls."""
    lock = FolderLock(tmp_path)
    with lock:
        pass
    found = weakref.ref(lock)
    del lock
    gc.collect()
    assert found() is None
