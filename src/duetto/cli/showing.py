"""What the commands that train show: where the run is, its progress, and how to go on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from duetto.errors import DuettoError
from duetto.training.progress import ProgressDisplay
from duetto.training.run import Run


@contextmanager
def shown(console: Console) -> Iterator[ProgressDisplay]:
    """A progress display; where the run fails, the error says how to go on from what was saved."""
    with ProgressDisplay(console) as display:
        try:
            yield display
        except DuettoError as error:
            if display.session is None or not display.session.store.steps():
                raise
            raise type(error)(f"{error}\nGo on from the last checkpoint with: duetto resume {display.session.folder}")


def finish(console: Console, run: Run, display: ProgressDisplay) -> None:
    """The last lines: done, or stopped and how to go on."""
    session = display.session
    assert session is not None
    if session.stopped:
        console.print(f"Stopped at step {session.step:,}. Go on with: duetto resume {run.path}", highlight=False)
        return
    if session.last_evaluation is not None:
        console.print(f"Last evaluation: {session.last_evaluation[1]}", highlight=False)
    console.print(f"See it: duetto video {run.path}", highlight=False)
