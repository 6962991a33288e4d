"""The display of a running sweep or study: lines for events and, on a terminal, live rows for runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typing_extensions import override

from duetto.training.progress_lines import LiveDisplay, clock

if TYPE_CHECKING:  # slow to import, and the display starts first
    from duetto.tools.sweep.sweep import Sweep

MAX_ROWS = 12


class SweepDisplay(LiveDisplay):
    """The display of a running sweep or study."""

    _sweep: Sweep | None = None

    def announce(self, sweep: Sweep) -> None:
        """Show the sweep's first lines, then its events and a row for each active run."""
        self._sweep, self._activity = sweep, ""
        sweep.on_event = self._event
        self._event(sweep.headline())

    def finish(self, result: Any) -> None:
        """Show the notices and the lines of the result."""
        self._show_notices(result.notices)
        for line in result.lines():
            self.say(line)

    def _event(self, line: str) -> None:
        """Show new notices, a row for each of the first active runs, and the event's line if it is not empty."""
        assert self._sweep is not None
        self._show_notices(self._sweep.notices)
        if self._live_lines and (self._is_due() or line):
            at_work = [run for run in self._sweep.runs if run.is_at_work][:MAX_ROWS]
            shown = {run.label(self._sweep.folder): run for run in at_work}
            self._keep_rows(list(shown))
            for label, run in shown.items():
                run.update()
                self._row(label, run.step, run.steps, note=run.score, left=clock(run.seconds_left()))
        if line:
            self.say(line)

    @override
    def _status(self) -> list[str]:
        if (sweep := self._sweep) is None:
            return []
        more = sum(run.is_at_work for run in sweep.runs) - MAX_ROWS
        stopping = ["stopping: writing checkpoints"] if sweep.stopped else []
        return [*stopping, *sweep.status(), *[f"and {more} more"] * (more > 0)]
