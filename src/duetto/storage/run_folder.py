"""Make the folder of a new run, and clear it if the run does not start."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from duetto.errors import UsageError

BEFORE = "before"  # name of folders in a run's folder with files as they were before the run changed them
_FIRST = (".tmp-config.yaml", "metrics.jsonl", "evaluations.csv", "config.yaml", ".lock")  # in the order of deletion


def free_folder(parent: Path, name: str) -> Path:
    """Make `parent/name`, or the first of `name-2`, `name-3` ... that is not taken."""
    number = 1
    while True:
        path = parent / (name if number == 1 else f"{name}-{number}")
        try:
            path.mkdir(parents=True)
        except OSError as error:
            number += 1
            if not (isinstance(error, FileExistsError) and parent.is_dir()):  # else the name is taken
                raise UsageError(f"{path} cannot be made: {error.strerror}. Choose another --runs-dir.") from error
        else:
            return path


def foreign(folder: Path) -> list[str]:
    """Return the names in a folder that a run which was killed at its start does not leave."""
    return sorted({child.name for child in folder.glob("*")} - {_FIRST[0], _FIRST[-1]})


def clear(folder: Path) -> None:
    """Delete the files of a run that did not start, and its folder if it is empty then."""
    for name in _FIRST:
        with suppress(OSError):
            (folder / name).unlink()
    with suppress(OSError):
        folder.rmdir()
