"""`duetto check ENVIRONMENT`: an id, or `FILE.py:CLASS`."""

from __future__ import annotations

from typing import Annotated

import tyro
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from tyro.conf import arg

from duetto.cli import options
from duetto.cli.options import EnvironmentId, Json, PlainEnvironmentOptions
from duetto.cli.output import print_json
from duetto.display.progress import working
from duetto.environments import checking
from duetto.environments.checking import apart
from duetto.errors import DuettoError

TITLES = {"broken": "Broken: training fails, or learns something else", "costs": "Costs you something", "fine": "Fine"}


def main(arguments: list[str]) -> None:
    """Parse, and check."""
    tyro.cli(check, args=arguments, prog="duetto check")


def check(
    environment: EnvironmentId,
    environment_options: PlainEnvironmentOptions = (),
    steps: Annotated[int, arg(help="Steps of random actions, at most.")] = apart.STEPS,
    timeout: Annotated[float, arg(help="Seconds after which one call counts as hanging.")] = apart.TIMEOUT,
    json: Json = False,
) -> None:
    """Try whether an environment keeps Gymnasium's contract and Duetto's, and say what to do where it does not.

    Nothing is trained, and nothing is written. Exit code 1 where something is broken.
    """
    given = options.environment_options(environment_options)
    with working(Console(stderr=True), f"trying {environment}"):
        found = checking.check(environment, environment_options=given, steps=steps, timeout=timeout)
    broken = [one for one in found if one.level == "broken"]
    if json:
        print_json({"environment": environment, "broken": len(broken), "findings": [vars(one) for one in found]})
    else:
        _show(found)
    if broken:
        raise DuettoError(f"{environment} is broken in {len(broken)} point(s): {', '.join(_abouts(broken))}.")


def _abouts(found: list[checking.Finding]) -> list[str]:
    return list(dict.fromkeys(one.about for one in found))


def _show(found: list[checking.Finding]) -> None:
    console = Console()
    for level, title in TITLES.items():
        rows = Table.grid(padding=(0, 2, 0, 0))
        for one in found:
            if one.level == level:
                rows.add_row(Text(one.about), Text(one.sentence))
        if rows.row_count:
            console.print(title, style="bold")
            console.print(Padding(rows, (0, 0, 1, 2)))
