"""Live displays with `rich.progress`: on a terminal, a row with a bar for each task, and a status line.

td3 HalfCheetah-v5 ━━━━━━━━━━━━╸━━━━━━━━━ 123,456/1,000,000 1,234 steps/s 0:11:50      a row
evaluation 4,321.0  training 4,012.3  critic loss 0.0123                               the status line
"""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID
from rich.table import Column
from rich.text import Text
from typing_extensions import override

from duetto.errors import escaped

LINE_SECONDS = 30.0  # between two plain lines
FIRST_LINE_SECONDS = 5.0  # from the start of an activity to the first plain line about it
RATE_SECONDS = 60.0  # steps/s is the mean over at most this time


def say(console: Console, text: str, style: str | None = None) -> None:
    """Print text without markup, with control characters escaped.

    On a terminal, text with a style wraps between words. Text without a style, such as a path, does not wrap.
    """
    if console.is_jupyter:  # Rich would create a separate output cell for each line
        print(escaped(text), file=console.file)
        return
    lines = escaped(text).splitlines()
    if style and console.is_terminal:
        lines = [textwrap.fill(line, console.width, break_long_words=False, break_on_hyphens=False) for line in lines]
    console.print("\n".join(lines), style=style, highlight=False, markup=False, soft_wrap=True)


def is_watched(console: Console) -> bool:
    """Return whether the console is a terminal or a notebook."""
    return console.is_terminal or console.is_jupyter


def clock(seconds: float | None) -> str:
    """Format a duration as h:mm:ss, and None as -:--:--."""
    if seconds is None:
        return "-:--:--"
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}"


@contextmanager
def working(text: str) -> Iterator[Callable[[str], None]]:
    """Show an activity and its duration on stderr, if stderr is a terminal; yield a function that changes the text."""
    console = Console(stderr=True)
    with LiveDisplay(console, quiet=not console.is_terminal) as display:
        display.doing(text)
        yield display.doing


class _Cell(ProgressColumn):
    """A column that shows a field of the task as plain text."""

    def __init__(self, field: str, shrinks: bool = False, style: str = "") -> None:
        super().__init__(Column(no_wrap=not shrinks, justify="left" if shrinks else "right"))
        self._field, self._style = field, style

    def render(self, task: Task) -> Text:
        text = escaped(task.fields[self._field])
        return Text(text, style=self._style, no_wrap=True, overflow="ellipsis")


COLUMNS = (_Cell("name", shrinks=True, style="bold"), BarColumn(bar_width=20, table_column=Column()))
COLUMNS += (_Cell("count"), _Cell("note"), _Cell("left"))


class _Progress(Progress):
    """Rich's progress with a status line below the rows."""

    status: Callable[[], str] = staticmethod(lambda: "")

    def __init__(self, console: Console) -> None:
        super().__init__(
            *COLUMNS,
            console=console,
            refresh_per_second=4,
            speed_estimate_period=RATE_SECONDS,
            transient=True,
            get_time=lambda: time.perf_counter(),
        )

    @override
    def get_renderables(self) -> Iterable[RenderableType]:
        if self.tasks:
            yield self.make_tasks_table(self.tasks)
        yield Text(escaped(self.status()), no_wrap=True, overflow="ellipsis")


class LiveDisplay:
    """Prints lines; in a `with` block on a terminal, also shows live rows and a status line."""

    def __init__(self, console: Console, quiet: bool = False) -> None:
        """Create a display. If `quiet`, it prints only notices."""
        self._console, self._quiet = console, quiet
        self._live_lines = console.is_terminal and not console.is_jupyter and not quiet
        self._activity, self._activity_since, self._next_word = "", 0.0, 0.0
        self._rows: dict[str, TaskID] = {}
        self._next_glance = 0.0
        self._shown_notices: set[str] = set()
        self._progress = _Progress(console)
        self._progress.status = self._status_line

    def __enter__(self) -> Self:
        if self._live_lines:
            self._progress.start()
        return self

    def __exit__(self, *raised: Any) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop the live lines. Text printed later appears below them."""
        if self._progress.live.is_started:
            self._progress.stop()

    def _status_line(self) -> str:
        if self._activity:
            return f"{self._activity} ({time.perf_counter() - self._activity_since:.0f} s)"
        return "  ".join(self._status())

    def _status(self) -> list[str]:
        """Return the parts of the status line, the most important part first."""
        return []

    def _row(self, name: str, completed: int, total: int, **cells: str) -> TaskID:
        """Add or update the row of this name: its count, and the given texts of its cells `note` and `left`."""
        fields: dict[str, Any] = cells | {"count": f"{completed:,}/{total:,}"}
        if name not in self._rows:
            first: dict[str, Any] = {"name": name, "note": "", "left": clock(None)} | fields
            self._rows[name] = self._progress.add_task("", **first)
        self._progress.update(self._rows[name], completed=min(completed, total), total=total, **fields)
        return self._rows[name]

    def _keep_rows(self, names: Sequence[str]) -> None:
        """Remove all rows except those with these names."""
        for name in self._rows.keys() - set(names):
            self._progress.remove_task(self._rows.pop(name))

    def _is_due(self) -> bool:
        """Return whether to update the rows of jobs: True at most once per second."""
        due = time.monotonic() >= self._next_glance
        if due:
            self._next_glance = time.monotonic() + 1
        return due

    def doing(self, text: str) -> None:
        """Show an activity and its duration; "" ends it. The duration restarts if the first word changes."""
        now = time.perf_counter()
        if not self._activity:
            self._next_word = now + FIRST_LINE_SECONDS
        if text.split(" ")[:1] != self._activity.split(" ")[:1]:
            self._activity_since = now
        self._activity = text
        if text and not self._live_lines and now >= self._next_word:
            self._next_word = now + LINE_SECONDS
            self.say(f"{text} ({now - self._activity_since:.0f} s)")

    def say(self, text: str) -> None:
        """Print text, unless the display is quiet."""
        if not self._quiet:
            say(self._console, text)

    def _show_notices(self, notices: Sequence[str], about: str = "") -> None:
        """Print each notice once, with `about` in front, even if the display is quiet."""
        for notice in notices:
            if notice not in self._shown_notices:
                self._shown_notices.add(notice)
                say(self._console, f"{about}{notice}", "yellow")
