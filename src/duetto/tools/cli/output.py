"""A command's output: JSON, file names, notices and errors."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from duetto.errors import escaped


def show_cursor() -> None:
    """Show the terminal's cursor, which a live display hides, even if the display has replaced `sys.stdout`."""
    for stream in (sys.__stdout__, sys.__stderr__) if "rich.live" in sys.modules else ():
        with suppress(OSError, ValueError):
            if stream and stream.isatty():
                print("\x1b[?25h", end="", file=stream, flush=True)


def print_error(text: str) -> None:
    """Print an error on stderr. On a terminal, wrap its lines between words."""
    lines = f"duetto: {text}".split("\n")
    print("\n".join(map(wrapped, lines) if sys.stderr.isatty() else lines), file=sys.stderr)


def wrapped(line: str, indent: str = "", hanging: str | None = None, width: int = 0) -> str:
    """Wrap a line to a width, by default the terminal's, with breaks between words only.

    Args:
        line: The text.
        indent: Prefix of the first line.
        hanging: Prefix of the later lines; by default `indent`.
        width: Number of columns; 0: the terminal's width.
    """
    kept: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
    kept |= {"initial_indent": indent, "subsequent_indent": indent if hanging is None else hanging}
    return textwrap.fill(line, width or shutil.get_terminal_size().columns, **kept)


def print_json(values: dict[str, Any]) -> None:
    """Print values as one line of JSON, for programs."""
    print(json.dumps(values, ensure_ascii=True))


def print_result(as_json: bool, values: dict[str, Any], notices: Sequence[str], *lines: str) -> None:
    """Print a command's result: lines on stdout and notices on stderr, or one JSON object."""
    if as_json:
        print_json(values | {"notices": notices})
        return
    print_notices(notices)
    for line in lines:
        print(escaped(line))


def print_notices(notices: Sequence[str]) -> None:
    """Print a run's notices on stderr, for example about damaged files."""
    from rich.console import Console  # slow to import, and `duetto --help` does not need it

    from duetto.training.progress_lines import say

    for notice in notices:
        say(Console(stderr=True), notice, "yellow")
