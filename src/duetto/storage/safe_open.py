"""Open files of a run's folder, but no links, pipes or other special files.

A folder from elsewhere may contain links to files of the user, which must not be changed, and pipes, which block when
they are read. The folder itself may be a link, for example to another disk.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from duetto.errors import DuettoError

_ITSELF = sum(getattr(os, flag, 0) for flag in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
_WINDOWS_LINKS = (0xA000000C, 0xA0000003)  # reparse tags of symbolic links and of junctions


def open_file(path: Path, flags: int) -> int:
    """Open a file of a run's folder and return its descriptor. The caller has checked its parent folders.

    Raises DuettoError if the path is not a plain file, or if a hard link is opened for writing. Raises OSError in the
    same cases as `os.open`.
    """
    _refuse_link(path)
    descriptor = os.open(path, flags | _ITSELF, 0o666)
    status = os.fstat(descriptor)
    written = flags & (os.O_WRONLY | os.O_RDWR)
    if stat.S_ISREG(status.st_mode) and not (written and status.st_nlink > 1):
        return descriptor
    os.close(descriptor)
    fault = "is a hard link: it has a second name elsewhere" if stat.S_ISREG(status.st_mode) else "is no plain file"
    raise DuettoError(f"{path} {fault}. Put a copy of the file that belongs there in its place.")


def read_file(path: Path, most: int) -> bytes:
    """Return a file's content. Raises DuettoError for more than `most` bytes, and the errors of `open_file`."""
    with os.fdopen(open_file(path, os.O_RDONLY), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise DuettoError(f"{path} has {size:,} bytes, more than the {most:,} that are read.")
        return file.read(size)


def check_folders(folders: Iterable[Path]) -> None:
    """Raise DuettoError if one of these folders of a run, or an entry of it, is a link."""
    for folder in folders:
        for path in (folder, *folder.glob("*")):
            _refuse_link(path)


def _refuse_link(path: Path) -> None:
    try:
        status = os.lstat(path)
    except OSError:  # missing, or opening it will raise
        return
    if stat.S_ISLNK(status.st_mode) or getattr(status, "st_reparse_tag", 0) in _WINDOWS_LINKS:
        raise DuettoError(f"{path} is a link. Replace it with the file or folder it points to, or link the whole run.")
