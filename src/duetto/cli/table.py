"""`duetto table RUN ... [--metric NAME ...] [--output FILE.csv]`."""

from __future__ import annotations

from typing import Annotated

import tyro
from tyro.conf import Positional, arg

from duetto.cli.options import Json, Runs
from duetto.cli.output import print_json
from duetto.cli.showing import say_file
from duetto.display import table as tables
from duetto.display import tidy


def main(arguments: list[str]) -> None:
    """Parse, and write."""
    tyro.cli(table, args=arguments, prog="duetto table")


def table(
    runs: Positional[Runs],
    output: Annotated[str | None, arg(help="A .csv; else it is printed.", metavar="FILE")] = None,
    metric: Annotated[
        tuple[str, ...], arg(help="Columns of evaluations.csv or numbers of metrics.jsonl.", metavar="NAME ...")
    ] = ("mean_return",),
    json: Json = False,
) -> None:
    """Write results as a tidy table: exp_name, env_name, seed, metric, env_step, value.

    plot and report read it, and what others publish in this form. Their avg_return is mean_return.
    """
    rows = tables.table(runs, output, metric)
    if output is not None:
        say_file(output, json, rows=len(rows))
    elif json:
        print_json({"rows": [row._asdict() for row in rows]})
    else:
        print(tidy.written(rows), end="")
