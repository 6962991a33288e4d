"""How far a run is, read from the ends of its logs, whichever process works on it."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from duetto.errors import DuettoError
from duetto.storage.records import Csv

TAIL = 64 * 2**10  # bytes, of which one line is enough


def evaluated(folder: Path) -> int:
    """The step of the last evaluation; -1 if there is none that can be read."""
    with suppress(OSError, ValueError, KeyError, TypeError, IndexError, DuettoError):
        return int(float(Csv.scan(folder / "evaluations.csv").rows[-1]["step"]))
    return -1


def read(folder: Path) -> tuple[int, float | None]:
    """Read the last step that was logged (or 0), and the last evaluation's mean return (or None, also if damaged)."""
    step, mean_return = 0, None
    with suppress(OSError, ValueError, KeyError, TypeError, DuettoError):
        step = int(json.loads(_last_line(folder / "metrics.jsonl"))["step"])
    with suppress(OSError, ValueError, KeyError, TypeError, IndexError, DuettoError):
        row = Csv.scan(folder / "evaluations.csv").rows[-1]
        step, mean_return = max(step, int(float(row["step"]))), float(row["mean_return"])
    return step, mean_return


def _last_line(path: Path) -> str:
    """The last whole line; "" if there is none."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - TAIL))
        *whole, _ = file.read().decode("utf-8", "replace").split("\n")
    return whole[-1] if whole else ""
