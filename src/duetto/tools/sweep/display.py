"""The display of a sweep at work: a line for each run that ended; on a terminal, a table that changes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from duetto.errors import escaped, near
from duetto.training.progress_lines import LiveDisplay, clock, plain

if TYPE_CHECKING:  # they import much, and the display shows something before that
    from duetto.tools.sweep.plan import PlannedRun
    from duetto.tools.sweep.results import ExperimentResult, SweepResult
    from duetto.tools.sweep.sweep import Sweep

MAX_ROWS = 12


class SweepDisplay(LiveDisplay):
    """The display of a sweep at work."""

    def __init__(self, console: Console, quiet: bool = False) -> None:
        super().__init__(console, quiet)
        self._sweep: Sweep | None = None
        self._first_steps = 0  # of all runs together, when the sweep started

    def announce(self, sweep: Sweep) -> None:
        """Show the first lines: how many runs, and where they are."""
        self._sweep, self._activity = sweep, ""
        sweep.on_event, sweep.on_poll = self._event, self._poll
        self._first_steps = _steps(sweep)
        self._show_rows()
        experiments = len({run.name.rpartition("-s")[0] for run in sweep.runs})
        count, plural = len(sweep.runs), "s" * (experiments > 1)
        self.say(f"{count} run{'s' * (count > 1)} of {experiments} experiment{plural}\n{near(sweep.folder)}/")
        complete = sum(run.state == "complete" for run in sweep.runs)
        begun = sum(run.begun for run in sweep.runs) - complete
        if complete or begun:
            self.say(f"Continuing: {complete} complete, {begun} started.")

    def finish(self, result: SweepResult) -> None:
        """Show the last lines: the results, and the picture, or how to continue."""
        assert self._sweep is not None
        self._show_notices(self._sweep.notices)
        if result.results and not self._quiet:
            self.say(plain(table(result.results), self._console.width))
            self.say("IQM: the interquartile mean of the seeds' last evaluations.")
        counts = Counter(run.state for run in result.runs)
        self.say(", ".join(f"{number} {state}" for state, number in counts.items()) + ".")
        if result.picture is not None:
            self.say(str(near(result.picture)))
        if result.stopped:
            self.say("Stopped. Continue with the same command.")

    def _event(self, run: PlannedRun, event: str) -> None:
        assert self._sweep is not None
        self._show_notices(self._sweep.notices)
        self._show_rows()
        spent = clock(time.monotonic() - run.started) if run.started else ""
        if event == "complete":
            event = "  ".join(part for part in (f"{run.step:,} steps", _score(run), spent) if part)
        elif event == "failed":
            event = f"failed: {run.reason}  See {near(self._sweep.log_of(run))}"
        elif event == "starts" and self._live_lines:  # its row shows it
            return
        self.say(f"{run.name}  {event}")

    def _poll(self) -> None:
        assert self._sweep is not None
        self._show_notices(self._sweep.notices)
        if self._live_lines and self._is_due():
            for run in self._sweep.runs:
                if run.state in ("working", "elsewhere"):
                    run.update()
            self._show_rows()

    def _working(self) -> list[PlannedRun]:
        return [] if self._sweep is None else [run for run in self._sweep.runs if run.state == "working"]

    def _show_rows(self) -> None:
        """Show a row for each of the first runs at work."""
        shown = self._working()[:MAX_ROWS]
        self._keep_rows([run.name for run in shown])
        for run in shown:
            self._row(run.name, run.step, run.steps, note=_score(run), left=clock(_seconds_left(run)))

    def _status(self) -> list[str]:
        if (sweep := self._sweep) is None:
            return []
        parts = ["stopping: writing checkpoints"] if sweep.stopped else []
        counts = Counter(run.state for run in sweep.runs)
        parts.append(f"{counts['complete']}/{len(sweep.runs)} runs")
        parts += [f"{counts['failed']} failed"] * bool(counts["failed"])
        parts += [f"{counts['elsewhere']} in other processes"] * bool(counts["elsewhere"])
        spent = time.monotonic() - sweep.started
        parts.append(clock(spent))
        remaining = sum(max(0, run.steps - run.step) for run in sweep.runs if run.state != "failed")
        trained = _steps(sweep) - self._first_steps
        if trained > 0:
            slowest = max((_seconds_left(run) or 0 for run in self._working()), default=0)
            parts.append(f"about {clock(max(remaining / trained * spent, slowest))} to go")
        more = len(self._working()) - MAX_ROWS
        return [*parts, *[f"and {more} more"] * (more > 0)]


def _steps(sweep: Sweep) -> int:
    return sum(min(run.step, run.steps) for run in sweep.runs)


def _seconds_left(run: PlannedRun) -> float | None:
    """Return the seconds that a run still needs at its speed so far; None before its first step."""
    trained, spent = run.step - run.first_step, time.monotonic() - run.started
    return max(0, run.steps - run.step) / trained * spent if trained > 0 else None


def _score(run: PlannedRun) -> str:
    return "" if run.mean_return is None else number(run.mean_return)


def number(value: float) -> str:
    """Format a number with four significant digits, a large one without an exponent."""
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"


def table(results: Sequence[ExperimentResult]) -> Table:
    """Return the table of results. On a narrow terminal, the labels of the algorithms are cut."""
    numeric = [Column(header, justify="right", no_wrap=True) for header in ("seeds", "steps", "IQM", "95 % interval")]
    grid = Table(
        Column("environment", no_wrap=True), "algorithm", *numeric, box=None, pad_edge=False, padding=(0, 2, 0, 0)
    )
    for result in results:
        low, high = result.low, result.high
        interval = "-" if low is None or high is None else f"{number(low)} to {number(high)}"
        label = Text(escaped(result.label), no_wrap=True, overflow="ellipsis")
        numbers = [str(result.seeds), f"{result.step:,}", number(result.interquartile_mean), interval]
        grid.add_row(Text(escaped(result.environment)), label, *numbers)
    return grid
