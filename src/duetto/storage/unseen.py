"""Folders that appear whole or not at all: they are filled under another name beside their own."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from duetto.errors import UsageError
from duetto.storage import disk


@contextmanager
def unseen(path: Path) -> Iterator[Path]:
    """A new folder beside `path`, to be filled and given to `publish`; if it is still there at the end, it is removed.

    Raises UsageError where none can be made there.
    """
    try:
        path.absolute().parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.partial-", dir=path.absolute().parent))
    except OSError as error:
        raise UsageError(f"{path} cannot be made: {error.strerror}. Choose another folder.") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def publish(folder: Path, path: Path) -> None:
    """Give the folder its name in one step, and the rights of any new folder; its files are on the disk already."""
    mask = os.umask(0)
    os.umask(mask)
    folder.chmod(0o777 & ~mask)  # until now it was its owner's only
    folder.rename(path)
    disk.sync_folder(path.absolute().parent)
