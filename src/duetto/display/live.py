"""Printing on a console, with lines that change: on a terminal below the printed text, in a notebook above it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Self

from rich.console import Console, ConsoleOptions, RenderableType
from rich.live import Live

from duetto.display.notebook import NotebookLines
from duetto.errors import escaped


def say(console: Console, text: str, style: str | None = None) -> None:
    """Print text as it is: a path in brackets is no markup, and a command to copy is not broken into lines.

    Text from a run's folder may come from a stranger: control characters are shown, not obeyed.
    """
    if console.is_jupyter:  # which would give each line an output of its own
        print(escaped(text), file=console.file)
        return
    console.print(escaped(text), style=style, highlight=False, markup=False, soft_wrap=True)


def is_watched(console: Console) -> bool:
    """Whether a person sees at once what is printed: on a terminal, or in a notebook."""
    return console.is_terminal or console.is_jupyter


class LiveDisplay(ABC):
    """A display of something at work: in a `with` block, lines that change if a person watches, and printed text."""

    def __init__(self, console: Console, quiet: bool = False) -> None:
        """With `quiet`, only notices are shown."""
        self._console, self._quiet = console, quiet
        self._live: Live | NotebookLines = NotebookLines(self)
        if not console.is_jupyter:
            self._live = Live(self, console=console, auto_refresh=console.is_terminal, transient=True)
        self._live_lines = is_watched(console) and not quiet
        self._noticed = 0  # notices shown

    def __enter__(self) -> Self:
        if self._live_lines:
            self._live.start()
        return self

    def __exit__(self, *raised: Any) -> None:
        if self._live_lines:
            self._live.stop()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """The lines as they are now."""
        yield self._lines(options.max_width)

    @abstractmethod
    def _lines(self, width: int) -> RenderableType:
        """The lines as they are now, no wider than this."""

    def _refresh(self) -> None:
        """Show the lines anew in a notebook; a terminal refreshes by itself."""
        if self._console.is_jupyter and self._live_lines:
            self._live.refresh()

    def say(self, text: str) -> None:
        """Print text, unless the display is quiet."""
        if not self._quiet:
            say(self._console, text)

    def _show_notices(self, notices: Sequence[str]) -> None:
        """Print the notices that are new; `notices` are all so far."""
        for notice in notices[self._noticed :]:
            say(self._console, notice, "yellow")
        self._noticed = len(notices)
