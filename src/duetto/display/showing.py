"""Showing a run at work on a console: for the commands that train, and for `duetto.train` and `Run.resume`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console

from duetto.display.progress import ProgressDisplay
from duetto.errors import UsageError, to_resume
from duetto.training.notices import shown_elsewhere

Display = TypeVar("Display", bound=ProgressDisplay)


@contextmanager
def shown(
    console: Console, beginning: str, quiet: bool = False, kind: type[Display] = ProgressDisplay
) -> Iterator[Display]:
    """Yield a progress display, which shows `beginning` until the run is announced.

    A UsageError in a run with checkpoints gets a sentence on how to go on.
    """
    with shown_elsewhere(), kind(console, quiet) as display:
        display.doing(beginning)
        try:
            yield display
        except UsageError as error:  # the other errors of a run say it themselves
            if display.session is None or not display.session.checkpoints.store.steps():
                raise
            raise UsageError(f"{error}\nThen go on with: {to_resume(display.session.folder)}") from error
