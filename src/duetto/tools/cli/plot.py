"""`duetto plot RUN ... [--metric NAME] [--output FILE.png]`."""

from __future__ import annotations

from typing import Annotated

from tyro.conf import arg

from duetto.tools.cli.options import Json, Metric, Runs
from duetto.tools.cli.output import print_file
from duetto.tools.plot import figure


def plot(
    runs: Runs,
    output: Annotated[str, arg(help="The picture: .png, .svg or .pdf.", metavar="FILE")] = "curves.png",
    metric: Metric = "mean_return",
    json: Json = False,
) -> None:
    """Draw learning curves: one for all seeds of the same options, with a band; one panel per environment."""
    print_file(figure.plot(runs, output, metric), json)
