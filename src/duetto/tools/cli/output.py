"""A command's output: JSON, file names, notices and errors."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from duetto.errors import escaped


def show_cursor() -> None:
    """Show the cursor of the terminal, which a live display hides."""
    for stream in (sys.__stdout__, sys.__stderr__) if "rich.live" in sys.modules else ():  # not those of the display
        with suppress(OSError, ValueError):
            if stream and stream.isatty():
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


def print_result(as_json: bool, values: dict[str, Any], notices: Sequence[str], *lines: str) -> None:
    """Print a command's result: lines, and notices on stderr; or everything as JSON."""
    if as_json:
        print_json(values | {"notices": notices})
        return
    print_notices(notices)
    for line in lines:
        print(escaped(line))


def print_notices(notices: Sequence[str]) -> None:
    """Print a run's notices on stderr, such as damage that was skipped."""
    from rich.console import Console  # `duetto --help` has no use for it

    from duetto.training.progress_lines import say

    for notice in notices:
        say(Console(stderr=True), notice, "yellow")
