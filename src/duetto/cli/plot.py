"""`duetto plot RUN ... [--metric NAME] [--output FILE.png]`."""

from __future__ import annotations

from typing import Annotated

import tyro
from tyro.conf import Positional, arg

from duetto.display import plotting
from duetto.errors import escaped


def main(arguments: list[str]) -> None:
    """Parse, and plot."""
    tyro.cli(plot, args=arguments, prog="duetto plot")


def plot(
    runs: Annotated[
        Positional[tuple[str, ...]],
        arg(help="Folders of runs: runs/td3-*", metavar="RUN ...", help_behavior_hint="(required)"),
    ],
    output: Annotated[str, arg(help="The picture: .png, .svg or .pdf.", metavar="FILE")] = "curves.png",
    metric: Annotated[
        str, arg(help="A column of evaluations.csv or a number of metrics.jsonl.", metavar="NAME")
    ] = "mean_return",
) -> None:
    """Draw learning curves: one for all seeds of the same options, with a band; one panel per environment."""
    print(escaped(str(plotting.plot(runs, output, metric))))
