"""A check that a run's folder stays in its place while the run works in it."""

from __future__ import annotations

from pathlib import Path

from duetto.errors import FolderLostError, to_resume
from duetto.storage.folder_lock import FolderLock


def check_folder(folder: Path, lock: FolderLock, step: int, saved: int | None) -> None:
    """Raise FolderLostError if `folder` was moved, replaced or deleted since the run began in it; `lock` shows it.

    `saved` is the step of the last checkpoint, None if there is none.
    """
    place = lock.place()
    if place == folder:
        return
    at, none = f"The run stopped at step {step}", ", before its first checkpoint"
    if place is not None:
        kept = none if saved is None else f"; its checkpoint of step {saved} is there"
        raise FolderLostError(
            f"{folder} was moved to {place} while the run worked in it. {at}{kept}. Go on with: {to_resume(place)}"
        )
    kept = none if saved is None else f"; its last checkpoint was that of step {saved}"
    if folder.exists():
        raise FolderLostError(
            f"{folder} is no longer the folder that the run began in, or its .lock was replaced, and another "
            f"process may be at work in it. {at}{kept}. Look at what is there before you go on with it."
        )
    raise FolderLostError(
        f"{folder} is gone: it was deleted, or moved to where that cannot be seen. {at}{kept}. "
        "If it was moved, go on with: duetto resume and its new place. Otherwise start a new run."
    )
