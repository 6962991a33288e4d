"""Live displays on `rich.progress`: rows with bars and a status line, on a terminal or in a notebook.

td3 HalfCheetah-v5 ━━━━━━━━━━━━╸━━━━━━━━━ 123,456/1,000,000 1,234 steps/s 0:11:50      a row for each task
evaluation 4,321.0  training 4,012.3  critic loss 0.0123                               the status line
"""

from __future__ import annotations

import atexit
import io
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Self

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.jupyter import JupyterMixin
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID
from rich.table import Column
from rich.text import Text

from duetto.errors import escaped

LINE_SECONDS = 30.0  # between two plain lines
FIRST_LINE_SECONDS = 5.0  # before the first plain line about a long activity
RATE_SECONDS = 60.0  # over which steps/s is a mean at most
NARROW = 60  # columns; a narrower terminal shows neither bars nor notes
SIGTERM = signal.SIGTERM
SHOW_CURSOR = b"\x1b[?25h"


def say(console: Console, text: str, style: str | None = None) -> None:
    """Print text without markup and line breaks of its own; show control characters escaped."""
    if console.is_jupyter:  # where Rich would make an output for each line
        print(escaped(text), file=console.file)
        return
    console.print(escaped(text), style=style, highlight=False, markup=False, soft_wrap=True)


def is_watched(console: Console) -> bool:
    """Return whether the console is a terminal or a notebook."""
    return console.is_terminal or console.is_jupyter


def plain(renderable: RenderableType, width: int) -> str:
    """Render without styles to lines of at most `width` columns."""
    console = Console(width=width, file=io.StringIO(), force_terminal=False, force_jupyter=False, color_system=None)
    with console.capture() as capture:
        console.print(renderable)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def clock(seconds: float | None) -> str:
    """Format a duration as h:mm:ss, an unknown one as -:--:--."""
    if seconds is None:
        return "-:--:--"
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}"


@contextmanager
def working(console: Console, text: str) -> Iterator[Callable[[str], None]]:
    """Show an activity and its duration on a terminal; yield a function that changes the text."""
    with LiveDisplay(console, quiet=not console.is_terminal) as display:
        display.doing(text)
        yield display.doing


class _Cell(ProgressColumn):
    """A field of the task as plain text in one line."""

    def __init__(self, field: str, shrinks: bool = False, style: str = "") -> None:
        super().__init__(Column(no_wrap=not shrinks, justify="left" if shrinks else "right"))
        self._field, self._style = field, style

    def render(self, task: Task) -> Text:
        text = escaped(task.fields[self._field])
        return Text(text, style=self._style, no_wrap=True, overflow="ellipsis")


NAME, BAR = _Cell("name", shrinks=True, style="bold"), BarColumn(bar_width=20, table_column=Column())
COUNT, NOTE, LEFT = _Cell("count"), _Cell("note"), _Cell("left")


class _Progress(Progress):
    """Rich's progress; in a notebook one output that is replaced, which stays visible in the saved notebook."""

    def __init__(self, lines: RenderableType, console: Console) -> None:
        self._lines, self._output = lines, None
        self._on_sigterm: Callable[[int, Any], None] | None = None
        super().__init__(
            console=console,
            refresh_per_second=4,
            speed_estimate_period=RATE_SECONDS,
            transient=True,
            get_time=lambda: time.perf_counter(),
        )

    def get_renderable(self) -> RenderableType:
        return self._lines

    def start(self) -> None:
        if self.console.is_jupyter:
            self._output = import_module("IPython.display").display(_Output(self._lines), display_id=True)
        else:
            atexit.register(self.stop)  # an interrupt between the start and the `with` block must not hide the cursor
            self._show_cursor_before_sigterm()
            super().start()

    def _show_cursor_before_sigterm(self) -> None:
        """Have SIGTERM show the cursor before it ends the process, unless it has a handler already."""
        if threading.current_thread() is not threading.main_thread() or signal.getsignal(SIGTERM) != signal.SIG_DFL:
            return
        try:
            terminal = self.console.file.fileno()
        except OSError:  # not a file
            return

        def end(number: int, _: Any) -> None:
            os.write(terminal, SHOW_CURSOR)  # Rich's own writing may have been interrupted half-way
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

        self._on_sigterm = end
        signal.signal(SIGTERM, end)

    def refresh(self) -> None:
        if self._output is not None:
            self._output.update(_Output(self._lines))
        super().refresh()

    def stop(self) -> None:
        if self._output is not None:
            self._output.update(_Output("" if self.live.transient else self._lines))
            self._output = None
        elif self.live.is_started:
            super().stop()
            atexit.unregister(self.stop)
            if self._on_sigterm is not None and signal.getsignal(SIGTERM) == self._on_sigterm:
                signal.signal(SIGTERM, signal.SIG_DFL)


class _Output(JupyterMixin):
    """Lines as HTML and as plain text."""

    def __init__(self, lines: RenderableType) -> None:
        self._lines = lines

    def __rich_console__(self, *_: Any) -> Iterator[RenderableType]:
        yield self._lines


class LiveDisplay:
    """Rows and a status line that change while a `with` block runs, if a person watches; and printed lines."""

    def __init__(self, console: Console, quiet: bool = False) -> None:
        """Print only notices if `quiet`."""
        self._console, self._quiet = console, quiet
        self._live_lines = is_watched(console) and not quiet
        self._activity, self._activity_since, self._next_word = "", 0.0, 0.0
        self._rows: dict[str, TaskID] = {}
        self._next_glance = 0.0
        self._shown_notices: set[str] = set()
        self._progress = _Progress(self, console)

    def __enter__(self) -> Self:
        if self._live_lines:
            self._progress.start()
        return self

    def __exit__(self, *raised: Any) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop the live lines. Text printed later appears below them."""
        self._progress.stop()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        width = options.max_width
        columns = [NAME, BAR, COUNT, NOTE, LEFT] if width >= NARROW else [NAME, COUNT, LEFT]
        if tasks := self._progress.tasks:
            self._progress.columns = tuple(columns)
            yield self._progress.make_tasks_table(tasks)
        seconds = time.perf_counter() - self._activity_since
        text = f"{self._activity} ({seconds:.0f} s)" if self._activity else fitting(self._status(), width)
        yield Text(escaped(text), no_wrap=True, overflow="ellipsis")

    def _status(self) -> list[str]:
        """Return the parts of the status line, the most important first."""
        return []

    def _row(self, name: str, completed: int, total: int, unit: str = "", **cells: str) -> TaskID:
        """Add or update the row of this name: its count, and the cells `note` and `left`, if given."""
        fields: dict[str, Any] = cells | {"count": f"{completed:,}/{total:,}{unit}"}
        if name not in self._rows:
            first: dict[str, Any] = {"name": name, "note": "", "left": clock(None)} | fields
            self._rows[name] = self._progress.add_task("", **first)
        self._progress.update(self._rows[name], completed=min(completed, total), total=total, **fields)
        return self._rows[name]

    def _keep_rows(self, names: Sequence[str]) -> None:
        """Remove the rows of other names."""
        for name in self._rows.keys() - set(names):
            self._progress.remove_task(self._rows.pop(name))

    def _is_due(self) -> bool:
        """Return true once in a second: whether to update the rows of jobs."""
        due = time.monotonic() >= self._next_glance
        if due:
            self._next_glance = time.monotonic() + 1
        return due

    def _refresh(self) -> None:
        """Show the lines as they are now in a notebook; a terminal refreshes in a thread."""
        if self._console.is_jupyter:
            self._progress.refresh()

    def doing(self, text: str) -> None:
        """Show an activity in the status line; "" for training. The time restarts if the first word differs."""
        now = time.perf_counter()
        if not self._activity:
            self._next_word = now + FIRST_LINE_SECONDS
        if text.split(" ")[:1] != self._activity.split(" ")[:1]:
            self._activity_since = now
        self._activity = text
        self._refresh()
        if text and not self._live_lines and now >= self._next_word:
            self._next_word = now + LINE_SECONDS
            self.say(f"{text} ({now - self._activity_since:.0f} s)")

    def say(self, text: str) -> None:
        """Print text, unless the display is quiet."""
        if not self._quiet:
            say(self._console, text)

    def _show_notices(self, notices: Sequence[str], about: str = "") -> None:
        """Print each notice once, after `about`; also if the display is quiet."""
        for notice in notices:
            if notice not in self._shown_notices:
                self._shown_notices.add(notice)
                say(self._console, f"{about}{notice}", "yellow")


def fitting(parts: list[str], width: int) -> str:
    """Join as many of the first parts as fit into the width."""
    while len(parts) > 1 and cell_len("  ".join(parts)) > width:
        parts = parts[:-1]
    return "  ".join(parts)
