"""The logged numbers of a run, by step."""

from __future__ import annotations

from typing import Any

from duetto.runs.run import Run


def metrics_by_step(run: Run) -> dict[int, dict[str, Any]]:
    """Return the metrics of each step."""
    lines: dict[int, dict[str, Any]] = {}
    for line in run.metrics():  # the last step can have two lines, with different metrics
        own = {name: value for name, value in line.items() if name != "step" and value is not None}
        lines.setdefault(line["step"], {}).update(own)
    return lines


def evaluations_by_step(run: Run) -> dict[int, dict[str, float]]:
    """Return the numbers of each evaluation, by step."""
    unsent = ("step", "episodes", "seconds")
    return {
        int(row["step"]): {f"evaluation/{name}": value for name, value in row.items() if name not in unsent}
        for row in run.evaluations()
    }
