"""Where a command's words go, and what happens when they can go nowhere.

A run outlives whoever reads along: a reader that closed the pipe, a full disk, a terminal that is gone. Other commands
are for what they say, and fail. What a terminal has no character for it gets as an escape (± as \\xb1), as Python does
it on stderr.
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
    """Within, stdout is an `Output`.

    Raises:
        BrokenPipeError: The reader has seen enough.
        DuettoError: What was said could not be written.
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
    """Within, what cannot be written on stdout is lost, and nothing else is."""
    stream: Any = Output(sys.stdout, expendable=True)
    with redirect_stdout(stream):
        try:
            yield stream
        finally:
            stream.flush()


def print_json(values: dict[str, Any]) -> None:
    """One line, for programs."""
    print(json.dumps(values, ensure_ascii=True))


class Output:
    """A text stream that, once it cannot be written to, leads nowhere; unless it is `expendable`, that is an error."""

    def __init__(self, stream: Any, expendable: bool = False) -> None:
        self._stream = stream._stream if isinstance(stream, Output) else stream
        self.expendable = expendable

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """As the stream's."""
        try:
            return self._stream.write(text)
        except OSError as error:
            self._failed(error)
            return len(text)

    def flush(self) -> None:
        """As the stream's."""
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
    """So that no file of a run gets the number of an output, and with it what is written there."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115, it stays open
