"""A check that a run's logs still hold what they held at its newest checkpoint, without loading that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from duetto.errors import DuettoError
from duetto.storage import snapshot
from duetto.storage.manifest import Manifest
from duetto.storage.records import holds

_STATE = "state.json"


def changed(folder: Path) -> dict[str, int]:
    """The run's logs that no longer hold what they held at its newest checkpoint: file name to the checkpoint's step.

    The result is empty for a run without a checkpoint that can be read.
    """
    for step, path in reversed(snapshot.listing(folder / "checkpoints")):
        try:
            state = _state(path)
            marks = {"metrics.jsonl": state["log"]["position"], "evaluations.csv": state["evaluations"]}
            return {name: step for name, mark in marks.items() if not holds(folder / name, mark)}
        except (DuettoError, OSError, ValueError, TypeError, KeyError, RecursionError):
            continue  # damaged, or gone since it was listed: the run may be alive
    return {}


def _state(path: Path) -> dict[str, Any]:
    """Everything in a checkpoint's state that is no array."""
    (record,) = (record for record in Manifest.read(path).files if record.name == _STATE)
    return json.loads(record.read(path))
