"""`duetto table RUN ... [--metric NAME ...] [--output FILE.csv]`."""

from __future__ import annotations

from typing import Annotated

from tyro.conf import arg

from duetto.tools.cli.options import Json, Runs
from duetto.tools.cli.output import print_file, print_json
from duetto.tools.cli.parser import Texts
from duetto.tools.plot import table as tables
from duetto.tools.plot import tidy_csv


def table(
    runs: Runs,
    output: Annotated[str | None, arg(help="A .csv; without it the table is printed.", metavar="FILE")] = None,
    metric: Annotated[
        Texts, arg(help="Columns of evaluations.csv or numbers of metrics.jsonl.", metavar="NAME ...")
    ] = ("mean_return",),
    json: Json = False,
) -> None:
    """Write results as a tidy table: exp_name, env_name, seed, metric, env_step, value.

    plot and report read it, and tables that others publish in this form. Their avg_return is mean_return.
    """
    rows = tables.table(runs, output, metric)
    if output is not None:
        print_file(output, json, rows=len(rows))
    elif json:
        print_json({"rows": [row._asdict() for row in rows]})
    else:
        print(tidy_csv.written(rows), end="")
