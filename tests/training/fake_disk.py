"""Replacements of `os` in `duetto.storage.atomic_io` that record or fail file operations."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Killed(BaseException):
    """Stands for `kill -9`: Duetto must not catch it."""


class CountingOS:
    """Replaces `os`, and records each operation: (operation, name of the file)."""

    def __init__(self) -> None:
        self.tape: list[tuple[str, str]] = []
        self._names: dict[int, str] = {}

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(os, name)
        return (lambda *args: self._operate(name, attribute, *args)) if callable(attribute) else attribute

    def _operate(self, name: str, operation: Callable[..., Any], *args: Any) -> Any:
        self.tape.append((name, self._names.get(args[0], "") if isinstance(args[0], int) else Path(args[0]).name))
        result = None if name == "fsync" else operation(*args)  # only the call matters without power cuts
        if name == "open":
            self._names[result] = self.tape[-1][1]
        return result


class DyingOS(CountingOS):
    """Raises `Killed` instead of operation `dies_at`, and cuts all files that were not synced to half their size."""

    def __init__(self, dies_at: int) -> None:
        super().__init__()
        self._dies_at = dies_at
        self._unsynced: dict[int, int] = {}  # a second descriptor of each open file, valid after a rename
        self._never_synced: list[int] = []  # the second descriptors of closed files

    def _operate(self, name: str, operation: Callable[..., Any], *args: Any) -> Any:
        if len(self.tape) >= self._dies_at:  # dead, but this process must still close its files
            if name == "close":
                os.close(args[0])
            raise Killed
        result = super()._operate(name, operation, *args)
        if name == "open" and args[1] & os.O_WRONLY:
            self._unsynced[result] = os.dup(result)
        if name == "fsync" and args[0] in self._unsynced:
            os.close(self._unsynced.pop(args[0]))
        if name == "close" and args[0] in self._unsynced:
            self._never_synced.append(self._unsynced.pop(args[0]))
        if len(self.tape) == self._dies_at:
            for descriptor in [*self._unsynced.values(), *self._never_synced]:
                os.ftruncate(descriptor, os.fstat(descriptor).st_size // 2)
                os.close(descriptor)
        return result


class FailingOS(CountingOS):
    """Operation `fails_at` fails, once."""

    def __init__(self, fails_at: int) -> None:
        super().__init__()
        self._fails_at = fails_at

    def _operate(self, name: str, operation: Callable[..., Any], *args: Any) -> Any:
        if len(self.tape) + 1 == self._fails_at and name != "close":
            self.tape.append((name, "failed"))
            raise OSError(errno.EIO, "Input/output error")
        return super()._operate(name, operation, *args)


class FullOS(CountingOS):
    """A disk with `room` free bytes."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self._room = room

    def write(self, descriptor: int, data: memoryview) -> int:
        if self._room == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = os.write(descriptor, data[: self._room])
        self._room -= written
        return written
