"""The display of a sweep at work: a line for each run that ended; on a terminal, a table that changes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group, RenderableType
from rich.text import Text

from duetto.display.bar import clock, fitting
from duetto.display.live import LiveDisplay
from duetto.errors import escaped

if TYPE_CHECKING:  # with all that they import, and something is to be seen before that
    from duetto.sweeping.results import Result, Swept
    from duetto.sweeping.sweep import Entry, Sweep

GLANCE = 1.0  # seconds between two looks at how far the runs are
MOST = 12  # rows
NARROWEST = 12  # columns of a run's name
WIDE = 10  # columns of a bar
BAR, SCORE = 1, 3  # of a run's cells


class SweepDisplay(LiveDisplay):
    """The display of a sweep at work."""

    def __init__(self, console: Console, quiet: bool = False) -> None:
        super().__init__(console, quiet)
        self._sweep: Sweep | None = None
        self._doing = ""
        self._next = 0.0
        self._made = 0  # steps that were there before

    def _lines(self, width: int) -> RenderableType:
        if self._sweep is None or self._doing:
            return Text(self._doing)
        working = [entry for entry in self._sweep.entries if entry.state == "working"]
        more = f"and {len(working) - MOST} more" if len(working) > MOST else ""
        below = Text(fitting([*self._parts(self._sweep), *[more] * bool(more)], width))
        below.truncate(width, overflow="ellipsis")
        return Group(*rows([_cells(entry) for entry in working[:MOST]], width), below)

    def doing(self, text: str) -> None:
        """Show what is being done other than training; "" for training."""
        self._doing = text
        self._refresh()

    def announce(self, sweep: Sweep) -> None:
        """Show the first lines: how many runs, and where they are."""
        self._sweep, self._doing = sweep, ""
        sweep.on_event, sweep.on_look = self._event, self._look
        for entry in sweep.entries:
            entry.look()
        self._made = sum(min(entry.step, entry.steps) for entry in sweep.entries)
        settings = len({entry.planned.job.name.rpartition("-s")[0] for entry in sweep.entries})
        count, many = len(sweep.entries), "s" * (settings > 1)
        self.say(f"{count} run{'s' * (count > 1)} of {settings} setting{many}\n{sweep.folder}/")
        complete = sum(entry.planned.complete for entry in sweep.entries)
        begun = sum(entry.planned.begun for entry in sweep.entries) - complete
        if complete or begun:
            self.say(f"Going on: {complete} complete, {begun} begun.")

    def finish(self, found: Swept) -> None:
        """Show the last lines: how good each setting is, and what to look at, or how to go on."""
        assert self._sweep is not None
        self._show_notices(self._sweep.notices)
        if found.results and not self._quiet:
            for line in table(found.results, self._console.width):
                self.say(line.plain)
            self.say("IQM: the interquartile mean of the seeds' last evaluations.")
        counts = Counter(run.state for run in found.runs)
        self.say(", ".join(f"{number} {state}" for state, number in counts.items()) + ".")
        if found.picture is not None:
            self.say(str(found.picture))
        if found.stopped:
            self.say("Stopped. Go on with the same command.")

    def _event(self, entry: Entry, what: str) -> None:
        assert self._sweep is not None
        self._show_notices(self._sweep.notices)
        spent = clock(time.monotonic() - entry.began) if entry.began else ""
        if what == "complete":
            what = "  ".join(part for part in (f"{entry.step:,} steps", _score(entry), spent) if part)
        elif what == "failed":
            what = f"failed: {entry.reason}  See {self._sweep.log_of(entry)}"
        elif what == "begins" and self._live_lines:  # its row shows it
            return
        self.say(f"{entry.name}  {what}")

    def _look(self) -> None:
        assert self._sweep is not None
        self._show_notices(self._sweep.notices)
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + GLANCE
        if self._live_lines:
            for entry in self._sweep.entries:
                if entry.state in ("working", "elsewhere"):
                    entry.look()
            self._refresh()

    def _parts(self, sweep: Sweep) -> list[str]:
        """The parts of the last line, the most important first."""
        parts = ["stopping: writing checkpoints"] if sweep.stopped else []
        counts = Counter(entry.state for entry in sweep.entries)
        parts.append(f"{counts['complete']}/{len(sweep.entries)} runs")
        parts += [f"{counts['failed']} failed"] * bool(counts["failed"])
        parts += [f"{counts['elsewhere']} at work elsewhere"] * bool(counts["elsewhere"])
        spent = time.monotonic() - sweep.began
        parts.append(clock(spent))
        open_ones = [entry for entry in sweep.entries if entry.state != "failed"]
        to_come = sum(max(0, entry.steps - entry.step) for entry in open_ones)
        made = sum(min(entry.step, entry.steps) for entry in sweep.entries) - self._made
        if made <= 0:
            return parts
        slowest = max((_left(entry) or 0 for entry in open_ones if entry.state == "working"), default=0)
        return [*parts, f"about {clock(max(to_come / made * spent, slowest))} to go"]


def _cells(entry: Entry) -> list[str]:
    """The cells of a run's row: name, bar, steps, score, and the time left."""
    share = min(1.0, entry.step / entry.steps)
    left = _left(entry)
    bar = "━" * round(share * WIDE)
    steps = f"{entry.step:,}/{entry.steps:,}"
    return [entry.name, f"{bar:<{WIDE}}", steps, _score(entry), "-:--:--" if left is None else clock(left)]


def _left(entry: Entry) -> float | None:
    """Seconds that a run still needs at its speed so far; None before its first step."""
    made, spent = entry.step - entry.first, time.monotonic() - entry.began
    return max(0, entry.steps - entry.step) / made * spent if made > 0 else None


def _score(entry: Entry) -> str:
    return "" if entry.mean_return is None else number(entry.mean_return)


def number(value: float) -> str:
    """A number as text with four significant digits, without an exponent for large ones."""
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"


def rows(cells: Sequence[list[str]], width: int, expendable: Sequence[int] = (BAR, SCORE)) -> list[Text]:
    """Lines of equal columns that fit the width: expendable columns are dropped first, then the name is cut."""
    if not cells:
        return []
    columns = [[escaped(cell) for cell in column] for column in zip(*cells, strict=True)]
    wide = [max(map(cell_len, column)) for column in columns]
    kept = [number for number in range(len(wide)) if wide[number]]
    for column in expendable:
        needed = sum(wide[number] + 2 for number in kept if number) + min(wide[0], 3 * NARROWEST)
        if needed > width and column in kept:
            kept.remove(column)
    wide[0] = min(wide[0], max(NARROWEST, width - sum(wide[number] + 2 for number in kept if number)))
    lines = []
    for row in zip(*columns, strict=True):
        name = row[0] if cell_len(row[0]) <= wide[0] else set_cell_size(row[0], wide[0] - 1) + "…"
        right = [set_cell_size("", wide[number] - cell_len(row[number])) + row[number] for number in kept[1:]]
        line = Text("  ".join([set_cell_size(name, wide[0]), *right]), no_wrap=True)
        line.truncate(width)
        lines.append(line)
    return lines


def table(results: Sequence[Result], width: int) -> list[Text]:
    """The table of results: lines of equal columns, with names cut if they do not fit."""
    wide = max(cell_len(name) for name in ["environment", *(one.environment for one in results)])
    cells = [[set_cell_size("environment", wide) + "  algorithm", "seeds", "steps", "IQM", "95 % interval"]]
    for one in results:
        interval = "-" if one.low is None or one.high is None else f"{number(one.low)} to {number(one.high)}"
        name = f"{set_cell_size(one.environment, wide)}  {one.label}"
        cells.append([name, str(one.seeds), f"{one.step:,}", number(one.interquartile_mean), interval])
    return rows(cells, width, expendable=())
