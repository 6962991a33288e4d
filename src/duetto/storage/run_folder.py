"""The folder of a run: make it, let one process at a time work on it, and clear it if the run does not start."""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from duetto.errors import DuettoError, RunInUseError, UsageError
from duetto.storage import safe_open

if sys.platform == "win32":
    import msvcrt

    _BEYOND_THE_TEXT = 1 << 20  # lock a byte after the text: a locked byte cannot be read

    def _try_lock(descriptor: int) -> None:
        os.lseek(descriptor, _BEYOND_THE_TEXT, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        os.lseek(descriptor, 0, os.SEEK_SET)

else:
    import fcntl

    def _try_lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


LOCK = ".lock"
BEFORE = "before"  # name of subfolders with copies of files from before the run changed them
# The files of a run at its start, in the order of deletion.
_FIRST = (".tmp-config.yaml", "metrics.jsonl", "evaluations.csv", "config.yaml", LOCK)
_HELD_ELSEWHERE = (errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK)


def free_folder(parent: Path, name: str) -> Path:
    """Make `parent/name`, or the first of `name-2`, `name-3` ... that is not taken."""
    number = 1
    while True:
        path = parent / (name if number == 1 else f"{name}-{number}")
        try:
            path.mkdir(parents=True)
        except OSError as error:
            number += 1
            if not (isinstance(error, FileExistsError) and parent.is_dir()):  # else the name is taken
                raise UsageError(f"{path} cannot be made: {error.strerror}. Choose another folder.") from error
        else:
            return path


def foreign(folder: Path) -> list[str]:
    """Return the names in a folder, without the files that a run leaves if it is killed at its start."""
    return sorted({child.name for child in folder.glob("*")} - {_FIRST[0], LOCK})


def clear(folder: Path) -> None:
    """Delete the files of a run that did not start, and its folder if it is empty afterwards."""
    for name in _FIRST:
        with suppress(OSError):
            (folder / name).unlink()
    with suppress(OSError):
        folder.rmdir()


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Hold a lock on `<folder>/.lock`. The operating system releases it when the process ends.

    Raises:
        RunInUseError: A running process holds the lock.
        DuettoError: The folder cannot be locked.
    """
    try:
        descriptor = safe_open.open_file(folder / LOCK, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise DuettoError(f"{folder} cannot be used as a run folder: {error.strerror}.") from error
    with os.fdopen(descriptor, "r+b", buffering=0):  # closes it
        try:
            _try_lock(descriptor)
        except OSError as error:
            raise _not_locked(folder, descriptor, error) from error
        with suppress(OSError):  # on a full disk; the text is only used in the error of other processes
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()} {socket.gethostname()}\n".encode())
        try:
            yield
        finally:
            with suppress(OSError):  # a full disk
                os.ftruncate(descriptor, 0)  # the file stays: deleting it would let two processes lock two files


def _not_locked(folder: Path, descriptor: int, error: OSError) -> DuettoError:
    if error.errno not in _HELD_ELSEWHERE:
        return DuettoError(f"{folder} cannot be locked: {error.strerror}. Put runs on a local disk.")
    holder = os.read(descriptor, 300).decode(errors="replace").split()
    pid, host = holder if len(holder) == 2 else ("PID", "this machine")  # the holder has not written its id yet
    return RunInUseError(
        f"{folder} is in use by process {pid} on {host}. Wait until it ends, or stop it there with `kill {pid}`, then "
        "try again."
    )
