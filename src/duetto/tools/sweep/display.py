"""The display of a sweep or a study at work: lines for its events; on a terminal, rows that change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console
from typing_extensions import override

from duetto.training.progress_lines import LiveDisplay, clock

if TYPE_CHECKING:  # it imports much, and the display shows something before that
    from duetto.tools.sweep.sweep import Sweep

MAX_ROWS = 12


class SweepDisplay(LiveDisplay):
    """The display of a sweep or a study at work."""

    def __init__(self, console: Console, quiet: bool = False) -> None:
        super().__init__(console, quiet)
        self._sweep: Sweep | None = None

    def announce(self, sweep: Sweep) -> None:
        """Show the first lines, and from now on the rows of the runs at work."""
        self._sweep, self._activity = sweep, ""
        sweep.on_event, sweep.on_poll = self._event, self._poll
        self._show_rows()
        self.say(sweep.headline())

    def finish(self, result: Any) -> None:
        """Show the last lines: the result's."""
        assert self._sweep is not None
        self._show_notices(self._sweep.notices)
        for line in result.lines():
            self.say(line)

    def _event(self, line: str) -> None:
        assert self._sweep is not None
        self._show_notices(self._sweep.notices)
        self._show_rows()
        self.say(line)

    def _poll(self) -> None:
        assert self._sweep is not None
        self._show_notices(self._sweep.notices)
        if self._live_lines and self._is_due():
            for run in self._sweep.runs:
                if run.is_at_work:
                    run.update()
            self._show_rows()

    def _show_rows(self) -> None:
        """Show a row for each of the first running runs."""
        assert self._sweep is not None
        shown = {run.label(self._sweep.folder): run for run in self._sweep.runs if run.is_at_work}
        shown = dict(list(shown.items())[:MAX_ROWS])
        self._keep_rows(list(shown))
        for label, run in shown.items():
            self._row(label, run.step, run.steps, note=run.score, left=clock(run.seconds_left()))

    @override
    def _status(self) -> list[str]:
        if (sweep := self._sweep) is None:
            return []
        more = sum(run.is_at_work for run in sweep.runs) - MAX_ROWS
        stopping = ["stopping: writing checkpoints"] if sweep.stopped else []
        return [*stopping, *sweep.status(), *[f"and {more} more"] * (more > 0)]
