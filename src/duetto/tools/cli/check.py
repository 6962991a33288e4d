"""`duetto check ENVIRONMENT`: an id, or `FILE.py:CLASS`."""

from __future__ import annotations

from typing import Annotated

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from tyro.conf import arg

from duetto.environments import check as checker
from duetto.errors import DuettoError
from duetto.tools.cli.options import EnvironmentId, EnvironmentOptions, Json, parse_options
from duetto.tools.cli.output import print_json
from duetto.training.progress_lines import working

TITLES = {"broken": "Broken: training fails or learns the wrong thing", "costs": "Costs you something", "fine": "Fine"}


def check(
    environment: EnvironmentId,
    environment_options: EnvironmentOptions = (),
    steps: Annotated[int, arg(help="Maximum number of random steps.")] = checker.STEPS,
    timeout: Annotated[
        float, arg(help="Seconds after which one call counts as a hang.", metavar="SECONDS")
    ] = checker.TIMEOUT,
    json: Json = False,
) -> None:
    """Check an environment against Gymnasium's contract and Duetto's, and suggest a remedy for each problem.

    Trains nothing and writes nothing. Exits with 1 if something is broken.
    """
    options = parse_options(environment_options)
    with working(Console(stderr=True), f"checking {environment}"):
        findings = checker.check(environment, environment_options=options, steps=steps, timeout=timeout)
    broken = [finding.about for finding in findings if finding.level == "broken"]
    if json:
        print_json({"environment": environment, "broken": len(broken), "findings": [vars(each) for each in findings]})
    else:
        _print_findings(findings)
    if broken:
        raise DuettoError(f"{environment} is broken in {len(broken)} point(s): {', '.join(dict.fromkeys(broken))}.")


def _print_findings(findings: list[checker.Finding]) -> None:
    console = Console()
    for level, title in TITLES.items():
        rows = Table.grid(padding=(0, 2, 0, 0))
        for finding in findings:
            if finding.level == level:
                rows.add_row(Text(finding.about), Text(finding.sentence))
        if rows.row_count:
            console.print(title, style="bold")
            console.print(Padding(rows, (0, 0, 1, 2)))
