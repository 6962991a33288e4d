"""`duetto plot RUN ... [--metric NAME] [--output FILE.png]`."""

from __future__ import annotations

from typing import Annotated

import tyro
from tyro.conf import Positional, arg

from duetto.cli.options import Json, Metric, Runs
from duetto.cli.showing import say_file
from duetto.display import plotting


def main(arguments: list[str]) -> None:
    """Parse, and plot."""
    tyro.cli(plot, args=arguments, prog="duetto plot")


def plot(
    runs: Positional[Runs],
    output: Annotated[str, arg(help="The picture: .png, .svg or .pdf.", metavar="FILE")] = "curves.png",
    metric: Metric = "mean_return",
    json: Json = False,
) -> None:
    """Draw learning curves: one for all seeds of the same options, with a band; one panel per environment."""
    say_file(plotting.plot(runs, output, metric), json)
