"""Keeping aside logs that a run cannot go on from as they were found, with a notice on each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from duetto.errors import DuettoError, UsageError, to_resume
from duetto.functional import forms
from duetto.storage import disk
from duetto.storage.records import Csv, JsonLines, Mark

BEFORE = "before"  # the folder's name, or its beginning


def free_folder(parent: Path, name: str) -> Path:
    """Make `parent/name`, or the first of `name-2`, `name-3` ... that is not taken."""
    number = 1
    while True:
        path = parent / (name if number == 1 else f"{name}-{number}")
        try:
            path.mkdir(parents=True)
        except FileExistsError as error:
            if not parent.is_dir():  # or the search would never end
                raise UsageError(
                    f"{parent} is no folder, or a link to one that is gone. Mend it, or choose another --runs-dir."
                ) from error
            number += 1
        except OSError as error:
            raise UsageError(
                f"{path} cannot be made: {error.strerror}. Put that right, or choose another --runs-dir."
            ) from error
        else:
            return path


def return_to(logs: Sequence[tuple[JsonLines | Csv, Mark | int]], step: int) -> list[str]:
    """Cut logs back to where they ended at the checkpoint of `step`.

    A log that no longer holds what it held then goes on with those of its lines that can be read; as it was found it
    is kept in `before/` beside it. Returns a sentence for each such log.

    Raises DuettoError if one cannot be kept; then it is as it was found. Raises CheckpointError for a malformed mark.
    """
    for _, mark in logs:
        forms.check(mark, int if isinstance(mark, int) else {"length": int, "sha256": str}, "the mark of a log")
    changed = [(log, mark) for log, mark in logs if not log.return_to(mark)]
    found = {log: log.as_found() for log, _ in changed}
    aside = free_folder(changed[0][0].path.parent, BEFORE) if any(found.values()) else None
    for log, data in found.items():
        if aside is not None and data:
            _keep(aside / log.path.name, data)
    return [_mended(log, mark, step, aside if found[log] else None) for log, mark in changed]


def _keep(path: Path, data: bytes) -> None:
    try:
        disk.publish_file(path, data)
    except OSError as error:
        raise DuettoError(
            f"{path} cannot be written: {error.strerror}. Put that right, then go on with: "
            f"{to_resume(path.parent.parent)}"
        ) from error


def _mended(log: JsonLines | Csv, mark: Mark | int, step: int, aside: Path | None) -> str:
    length = mark if isinstance(mark, int) else mark["length"]
    missing = length - log.found
    what = f"{missing:,} of its {length:,} bytes are missing" if missing > 0 else "its lines were changed"
    lines = log.keep_readable(step)
    where = f"As it was found it is in {aside}" if aside is not None else "Nothing of it was there"
    return (
        f"{log.path} is not what it was at the checkpoint of step {step}: {what}. "
        f"{where}; it goes on with the {lines} lines until then that can be read."
    )
