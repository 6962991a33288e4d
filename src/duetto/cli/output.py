"""Where a command's words go, and what happens when they can go nowhere.

A run outlives whoever reads along: a reader that closed the pipe, a full disk, a terminal that is gone. And what a
terminal has no character for it gets as an escape (± as \\xb1), as Python does it on stderr.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Any


def prepare() -> None:
    """Before the first word: no character is refused, and no file gets the number of an output that was closed."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115, it stays open
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


@contextmanager
def expendable() -> Iterator[Any]:
    """Within, what cannot be printed on stdout is lost, and nothing else is."""
    stream: Any = Expendable(sys.stdout)
    with redirect_stdout(stream):
        yield stream


class Expendable:
    """A text stream that drops what it cannot write."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """As the stream's, while that goes well."""
        try:
            return self._stream.write(text)
        except OSError:
            discard(self._stream)
            return len(text)

    def flush(self) -> None:
        """As the stream's, while that goes well."""
        try:
            self._stream.flush()
        except OSError:
            discard(self._stream)


def discard(stream: Any) -> None:
    """From here on, what is written to it, and what it still holds, goes nowhere."""
    with suppress(OSError):  # a stream in the place of stdout may have no file behind it
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
