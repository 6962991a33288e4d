"""`duetto report RUN ... [--output FILE.html] [--metric NAME]`."""

from __future__ import annotations

from typing import Annotated

import tyro
from rich.console import Console
from tyro.conf import Positional, arg

from duetto import reporting
from duetto.cli.options import Json, Metric, Runs
from duetto.cli.showing import say_file
from duetto.display.progress import working


def main(arguments: list[str]) -> None:
    """Parse, and report."""
    tyro.cli(report, args=arguments, prog="duetto report")


def report(
    runs: Positional[Runs],
    output: Annotated[str, arg(help="The page: .html.", metavar="FILE")] = "report.html",
    metric: Metric = "mean_return",
    json: Json = False,
) -> None:
    """Write one page about runs: results, interactive curves, losses and what healthy looks like, how to repeat it.

    It is one file that fetches nothing from anywhere.
    """
    with working(Console(stderr=True), "writing the report") as tell:
        path = reporting.report(runs, output, metric, tell)
    say_file(path, json)
