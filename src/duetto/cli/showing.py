"""What commands say of a run's folder that is no result."""

from __future__ import annotations

from rich.console import Console

from duetto.display.progress import say
from duetto.runs.run import Run


def warn(run: Run) -> None:
    """Say on stderr what was found damaged and passed over."""
    for notice in run.notices:
        say(Console(stderr=True), notice, "yellow")
