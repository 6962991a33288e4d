"""Loading the checkpoint that a user names."""

from __future__ import annotations

from pathlib import Path

from duetto.errors import UsageError
from duetto.functional.rng import as_int
from duetto.storage.checkpoint import CheckpointStore, Loaded


def chosen(folder: Path, checkpoint: str | int) -> Loaded:
    """Load the "last" or "best" checkpoint of the run in `folder`, or that of a step.

    Experience, which acting does not need, is not read, be it large or damaged.
    """
    store = CheckpointStore(folder / "checkpoints")
    match checkpoint:
        case "best":
            return store.load_best()
        case "last":
            return store.load_latest(memory=False)
    step = int(checkpoint) if isinstance(checkpoint, str) and checkpoint.isdecimal() else as_int(checkpoint)
    if not isinstance(step, int) or isinstance(step, bool):
        raise UsageError(f"checkpoint is {checkpoint!r}; it must be last, best or a step.")
    return store.load(step, memory=False)
