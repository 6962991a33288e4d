"""Small runs to track, and what their own logs say."""

from __future__ import annotations

from typing import Any

from small_runs import CrashAt, CrashError, StopAt, train

from duetto.runs.run import Run

__all__ = ["CrashAt", "CrashError", "StopAt", "evaluations_of", "lines_of", "train"]


def lines_of(run: Run) -> dict[int, dict[str, Any]]:
    """The numbers of each line of metrics, by step."""
    lines: dict[int, dict[str, Any]] = {}
    for line in run.metrics():  # at the end two may have one step: the second has what was logged behind the first
        lines.setdefault(line["step"], {}).update(line)
    return {
        step: {name: value for name, value in line.items() if name != "step" and value is not None}
        for step, line in lines.items()
    }


def evaluations_of(run: Run) -> dict[int, dict[str, float]]:
    """The numbers of each evaluation, by step."""
    rows = {int(row["step"]): row for row in run.evaluations()}
    unsent = ("step", "episodes", "seconds")
    return {
        step: {f"evaluation/{name}": value for name, value in row.items() if name not in unsent}
        for step, row in rows.items()
    }
