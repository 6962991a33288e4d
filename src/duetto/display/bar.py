"""The two lines that a terminal shows of a run at work, at any width: where it is, and what it has learned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

WIDEST, NARROWEST = 40, 5  # the bar itself, in columns


@dataclass
class State:
    """The values that the two lines show."""

    name: str = ""  # algorithm and environment
    step: int = 0
    steps: int = 0  # in all
    rate: float | None = None  # steps/s
    results: list[str] = field(default_factory=list)  # the most important first
    doing: str = ""  # what is done now beside stepping and learning


def lines(state: State, width: int) -> RenderableType:
    """The two lines. No part is cut and no line is broken: what does not fit is left out, the least important first."""
    below = Text(state.doing or fitting(state.results, width))
    below.truncate(width, overflow="ellipsis")
    return Group(_where(state, width), below) if state.steps else below


def fitting(parts: list[str], width: int, between: str = "  ") -> str:
    """Join as many of the first parts as fit into the width."""
    text = ""
    for part in parts:
        longer = f"{text}{between}{part}" if text else part
        if cell_len(longer) > width:
            break
        text = longer
    return text


def _where(state: State, width: int) -> Table:
    """The upper line: name, bar, steps, rate and the time left. If it does not fit, the name is left out first, then
    the rate, then the bar.
    """
    count = f"{state.step:,}/{state.steps:,}"
    rate = "- steps/s" if state.rate is None else f"{state.rate:,.0f} steps/s"
    to_come = max(0, state.steps - state.step)
    left = clock(to_come / (state.rate or 1)) if state.rate or not to_come else "-:--:--"
    parts = {"count": count, "rate": rate, "left": left}
    return row(state.name, state.step, state.steps, parts, width, expendable=("name", "rate", "bar"))


def row(name: str, made: int, steps: int, parts: dict[str, str], width: int, expendable: Sequence[str]) -> Table:
    """One row: the name, a bar of how many of the steps are made, and the parts. If it does not fit, what is expendable
    is left out, one after another: "name", "bar" or a part's key.
    """
    kept = {"name": name, "bar": " " * NARROWEST, **parts}
    for part in expendable:
        if _wide(kept) > width:
            del kept[part]
    grid = Table.grid(padding=(0, 1, 0, 0))
    cells: list[RenderableType] = []
    for part, text in kept.items():
        grid.add_column(no_wrap=True)
        bar = ProgressBar(steps, min(made, steps), width=min(WIDEST, NARROWEST + width - _wide(kept)))
        cells.append(bar if part == "bar" else Text(text, style="bold" if part == "name" else ""))
    grid.add_row(*cells)
    return grid


def _wide(parts: dict[str, str]) -> int:
    return sum(cell_len(part) + 1 for part in parts.values())


def clock(seconds: float) -> str:
    """A duration as h:mm:ss."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}"
