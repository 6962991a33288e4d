"""`duetto report RUN ... [--output FILE.html] [--metric NAME]`."""

from __future__ import annotations

from typing import Annotated

from rich.console import Console
from tyro.conf import arg

from duetto.tools.cli.options import Json, Metric, Runs
from duetto.tools.cli.output import print_file
from duetto.tools.report.report import report as write_report
from duetto.training.progress_lines import working


def report(
    runs: Runs,
    output: Annotated[str, arg(help="The page: .html.", metavar="FILE")] = "report.html",
    metric: Metric = "mean_return",
    json: Json = False,
) -> None:
    """Write one page about runs: results, interactive curves, losses and what healthy looks like, how to repeat it.

    The page is one file and needs no network.
    """
    with working(Console(stderr=True), "writing the report") as tell:
        path = write_report(runs, output, metric, tell)
    print_file(path, json)
