"""A command's output: JSON, file names and notices; and stdout that cannot be written to.

A run continues when its output is lost: the reader closed the pipe, the disk is full, the terminal is gone. Other
commands fail. Characters that a terminal lacks become escapes (± is \\xb1), as Python writes them on stderr.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Any

from duetto.errors import DuettoError, escaped


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
            stream.expendable = True  # the first error is the one to report
            raise
        finally:
            stream.flush()


@contextmanager
def expendable() -> Iterator[None]:
    """Silently drop what stdout cannot write in the block."""
    stream: Any = sys.stdout
    stream.expendable = True
    try:
        yield
    finally:
        stream.flush()
        stream.expendable = False


class Output:
    """A text stream. After a write error it drops output if it is `expendable`, and raises otherwise."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.expendable = False

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
            os.dup2(nowhere, self._stream.fileno())  # its buffer goes there as well
            os.close(nowhere)
        if self.expendable:
            return
        if isinstance(error, BrokenPipeError):
            raise error
        raise DuettoError(f"The output of this command cannot be written: {error.strerror}.") from error


def _open_what_is_closed() -> None:
    """Open standard streams that are closed: else a file of a run would get their number, and their output."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115, it stays open


def show_cursor() -> None:
    """Show the cursor of the terminal, which a live display hides."""
    for stream in (sys.stdout, sys.stderr) if "rich.live" in sys.modules else ():
        with suppress(OSError, ValueError):
            if stream.isatty():
                print("\x1b[?25h", end="", file=stream, flush=True)


def print_error(text: str) -> None:
    """Print an error on stderr; on a terminal without breaking words."""
    lines = f"duetto: {text}".split("\n")
    print("\n".join(map(wrapped, lines) if sys.stderr.isatty() else lines), file=sys.stderr)


def wrapped(line: str, indent: str = "", hanging: str | None = None, width: int = 0) -> str:
    """Return a line as lines that fit a width, the terminal's by default, broken between words only.

    Args:
        line: The text.
        indent: Begins the first line.
        hanging: Begins the others; by default `indent`.
        width: Columns.
    """
    kept: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
    kept |= {"initial_indent": indent, "subsequent_indent": indent if hanging is None else hanging}
    return textwrap.fill(line, width or shutil.get_terminal_size().columns, **kept)


def print_json(values: dict[str, Any]) -> None:
    """Print values as one line of JSON, for programs."""
    print(json.dumps(values, ensure_ascii=True))


def print_file(path: str | Path, as_json: bool, **values: Any) -> None:
    """Print a file's name; or, as JSON, `file` and the other values."""
    print_json({"file": str(path), **values}) if as_json else print(escaped(str(path)))


def print_notices(notices: Sequence[str]) -> None:
    """Print a run's notices on stderr, such as damage that was skipped."""
    from rich.console import Console  # `duetto --help` has no use for it

    from duetto.training.progress_lines import say

    for notice in notices:
        say(Console(stderr=True), notice, "yellow")
