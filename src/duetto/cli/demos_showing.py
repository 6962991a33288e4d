"""The output of the commands that make demonstrations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from duetto import demonstrations
from duetto.cli.output import print_json
from duetto.demonstrations import Demonstrations
from duetto.display.live import say
from duetto.networks.spaces import Discrete
from duetto.storage.config import circumstances


def versions() -> dict[str, str]:
    """The versions that runs record, and those of the packages that decide what a demonstration is."""
    return circumstances() | {name: version(name) for name in ("minari", "minigrid") if find_spec(name)}


@contextmanager
def progress(console: Console, episodes: int | None = None) -> Iterator[Callable[[], None]]:
    """Show a bar on a terminal, nothing elsewhere; yields a function to call after each episode."""
    columns = TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("episodes", total=episodes)
        yield lambda: bar.advance(task)


def say_what_is_there(
    console: Console, output: str, json: bool, tried: int | None = None, left_out: str | None = None
) -> None:
    """Show the last lines: what was made. `tried` is the number of episodes that were played for it."""
    found = demonstrations.load(output)
    games = found.parts.count(0)
    if json:
        said = {"file": output, "episodes": games, "steps": found.steps, "returns": found.returns.tolist()}
        print_json(said | {"tried": games if tried is None else tried, "left_out": left_out})
        return
    left = f", {tried - games} left out" if tried is not None and tried > games else ""
    say(console, f"{output}: {games} episodes{left}, {found.steps:,} steps, return {spread(found)}")
    if not isinstance(found.description.action_space, Discrete):
        say(console, "Whoever reads Minari's datasets can use it. Duetto's bc, dqfd and r2d3 learn from choices alone.")
    say(console, f"See them: duetto demos inspect {output}")


def spread(found: Demonstrations) -> str:
    """The mean of the returns and their range, as text."""
    return f"{found.returns.mean():.4g} ({found.returns.min():.4g} to {found.returns.max():.4g})"
