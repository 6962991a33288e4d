"""A check that a run's folder stays in its place while the run works in it."""

from __future__ import annotations

from pathlib import Path

from duetto.errors import FolderLostError
from duetto.storage.lock import FolderLock


def check_folder(folder: Path, lock: FolderLock, step: int, saved: int | None) -> None:
    """Raise FolderLostError if `folder` was moved, replaced or deleted since the run began in it; `lock` shows it.

    `saved` is the step of the last checkpoint, None if there is none.
    """
    if lock.is_in_place():
        return
    kept = ", before its first checkpoint" if saved is None else f"; its last checkpoint is that of step {saved}"
    raise FolderLostError(
        f"{folder} was moved, deleted or replaced while the run worked in it. The run stopped at step {step}{kept}. "
        "If the folder was moved, resume the run in its new place: duetto resume FOLDER."
    )
