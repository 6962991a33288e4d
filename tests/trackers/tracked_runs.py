"""What the logs of a tracked run say."""

from __future__ import annotations

from typing import Any

from duetto.runs.run import Run


def lines_of(run: Run) -> dict[int, dict[str, Any]]:
    """The numbers of each line of metrics, by step."""
    lines: dict[int, dict[str, Any]] = {}
    for line in run.metrics():  # at the end two may have one step: the second has what was logged behind the first
        own = {name: value for name, value in line.items() if name != "step" and value is not None}
        lines.setdefault(line["step"], {}).update(own)
    return lines


def evaluations_of(run: Run) -> dict[int, dict[str, float]]:
    """The numbers of each evaluation, by step."""
    unsent = ("step", "episodes", "seconds")
    return {
        int(row["step"]): {f"evaluation/{name}": value for name, value in row.items() if name not in unsent}
        for row in run.evaluations()
    }
