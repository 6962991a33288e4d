"""A command's stdout, and what happens when it cannot be written to.

A run goes on when its output is lost: the reader closed the pipe, the disk is full, the terminal is gone. Other
commands exist for their output, and fail. Characters that a terminal lacks become escapes (± is \\xb1), as Python
writes them on stderr.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Any

from duetto.errors import DuettoError


@contextmanager
def watched() -> Iterator[None]:
    """Replace stdout by an `Output` in the block.

    Raises:
        BrokenPipeError: The reader has closed the pipe.
        DuettoError: The output could not be written.
    """
    _open_what_is_closed()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    stream: Any = Output(sys.stdout)
    with redirect_stdout(stream):
        try:
            yield
        except DuettoError:
            stream.expendable = True  # what went wrong first is what has to be said
            raise
        finally:
            stream.flush()


@contextmanager
def expendable() -> Iterator[Any]:
    """Replace stdout in the block by a stream that silently drops what cannot be written; yields it."""
    stream: Any = Output(sys.stdout, expendable=True)
    with redirect_stdout(stream):
        try:
            yield stream
        finally:
            stream.flush()


def print_json(values: dict[str, Any]) -> None:
    """Print values as one line of JSON, for programs."""
    print(json.dumps(values, ensure_ascii=True))


class Output:
    """A text stream that drops everything once it cannot be written to; unless it is `expendable`, that is an error."""

    def __init__(self, stream: Any, expendable: bool = False) -> None:
        self._stream = stream._stream if isinstance(stream, Output) else stream
        self.expendable = expendable

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write text to the stream; see the class for errors."""
        try:
            return self._stream.write(text)
        except OSError as error:
            self._failed(error)
            return len(text)

    def flush(self) -> None:
        """Flush the stream; see the class for errors."""
        try:
            self._stream.flush()
        except OSError as error:
            self._failed(error)

    def _failed(self, error: OSError) -> None:
        with suppress(OSError):  # a stream in the place of stdout may have no file behind it
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())  # for what it still holds, too
            os.close(nowhere)
        if self.expendable:
            return
        if isinstance(error, BrokenPipeError):
            raise error
        raise DuettoError(f"What this command says cannot be written: {error.strerror}. Put that right.") from error


def _open_what_is_closed() -> None:
    """Open standard streams that are closed, so that no file of a run gets their number, and with it their output."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115, it stays open
