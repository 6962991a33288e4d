"""Output of commands on a run's notices, and on a file that they have written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console

from duetto.cli.output import print_json
from duetto.display.live import say
from duetto.errors import escaped
from duetto.runs.run import Run


def warn(run: Run) -> None:
    """Print the run's notices on stderr: damage that was found and passed over."""
    for notice in run.notices:
        say(Console(stderr=True), notice, "yellow")


def say_file(path: str | Path, json: bool, **about: Any) -> None:
    """Print a file's name; or, as JSON, `file` and what else is given about it."""
    print_json({"file": str(path), **about}) if json else print(escaped(str(path)))
