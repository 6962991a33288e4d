"""A lock that lets one process at a time work on a run folder."""

import errno
import os
import socket
import sys
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Self

from duetto.errors import DuettoError, RunInUseError
from duetto.storage import within

if sys.platform == "win32":
    import msvcrt

    _BEYOND_THE_TEXT = 1 << 20  # a locked byte cannot be read, and the holder's name must be

    def _try_lock(descriptor: int) -> None:
        os.lseek(descriptor, _BEYOND_THE_TEXT, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        os.lseek(descriptor, 0, os.SEEK_SET)

else:
    import fcntl

    def _try_lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _path_of(descriptor: int) -> Path | None:
    """The path of an open file now; None if the system does not tell: Linux and macOS do."""
    try:
        if sys.platform == "darwin":
            return Path(os.fsdecode(fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0")))
        return Path(f"/proc/self/fd/{descriptor}").readlink()
    except OSError:
        return None


def _let_go() -> None:
    """Release all locks in a process that was just forked."""
    for lock in list(_held):
        lock._close()


_held: "weakref.WeakSet[FolderLock]" = weakref.WeakSet()
if sys.platform != "win32":
    os.register_at_fork(after_in_child=_let_go)

_NAME = ".lock"
_HELD_ELSEWHERE = (errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK)


class FolderLock:
    """A lock on `<folder>/.lock`, held while the `with` block runs.

    The operating system releases it when the process ends, however it ends. Processes forked from the holder do not
    hold it, so that environment workers which outlive a killed trainer do not keep the run from being resumed.

    The lock's file also shows where the folder is: it stays open, whatever happens to its name.

    Raises RunInUseError if a living process holds it, DuettoError if the folder cannot be locked at all.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._descriptor: int | None = None

    def __enter__(self) -> Self:
        path = self.folder / _NAME
        try:
            descriptor = within.open_file(path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise DuettoError(f"{self.folder} cannot be used as a run folder: {error.strerror}.") from error
        try:
            _try_lock(descriptor)
        except OSError as error:
            holder = os.read(descriptor, 300).decode(errors="replace").split()
            os.close(descriptor)
            raise self._refusal(error, holder) from error
        with suppress(OSError):  # a full disk: only the words of a refusal want to know whose it is
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()} {socket.gethostname()}\n".encode())
        self._descriptor = descriptor
        _held.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # as above
            if self._descriptor is not None:
                os.ftruncate(self._descriptor, 0)  # the file stays: deleting it would let two processes lock two files
        self._close()

    def place(self) -> Path | None:
        """The folder's path now: as it was given, or where it was moved to; None if that cannot be known."""
        if self._descriptor is None or self._is_at(self.folder / _NAME):
            return self.folder
        found = _path_of(self._descriptor)
        return found.parent if found is not None and self._is_at(found) else None

    def _is_at(self, path: Path) -> bool:
        assert self._descriptor is not None
        try:
            return os.path.samestat(os.lstat(path), os.fstat(self._descriptor))
        except OSError:
            return False

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _refusal(self, error: OSError, holder: list[str]) -> DuettoError:
        if error.errno not in _HELD_ELSEWHERE:
            return DuettoError(f"{self.folder} cannot be locked: {error.strerror}. Put runs on a local disk.")
        if len(holder) != 2:  # it locked a moment ago and has not written yet
            return RunInUseError(f"{self.folder} is in use by another process. Wait until it ends, then try again.")
        pid, host = holder
        return RunInUseError(
            f"{self.folder} is in use by process {pid} on {host}. "
            f"Wait until it ends, or stop it there with `kill {pid}`, then try again."
        )
