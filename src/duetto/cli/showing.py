"""What the commands that train show: where the run is, its progress, and how to go on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from duetto.display.progress import ProgressDisplay, say
from duetto.errors import UsageError
from duetto.runs.run import Run


@contextmanager
def shown(console: Console) -> Iterator[ProgressDisplay]:
    """A progress display; where the environment turns out to be wrong, the error says how to go on."""
    with ProgressDisplay(console) as display:
        try:
            yield display
        except UsageError as error:  # the other errors of a run say it themselves
            if display.session is None or not display.session.store.steps():
                raise
            raise UsageError(f"{error}\nThen go on with: duetto resume {display.session.folder}") from error


def finish(console: Console, run: Run, display: ProgressDisplay) -> None:
    """The last lines: done, or stopped and how to go on."""
    session = display.session
    assert session is not None
    if session.stopped:
        say(console, f"Stopped at step {session.step:,}. Go on with: duetto resume {run.path}")
        return
    if session.last_evaluation is not None:
        say(console, f"Last evaluation: {session.last_evaluation[1]}")
    say(console, f"See it: duetto video {run.path}")


def warn(run: Run) -> None:
    """Say on stderr what was found damaged and passed over."""
    for notice in run.notices:
        say(Console(stderr=True), notice, "yellow")
