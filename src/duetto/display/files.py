"""Writing files that a command was asked for: whole or not at all."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from duetto.errors import DuettoError, UsageError


def check_name(output: str | Path, ending: str, what: str) -> Path:
    """The file's path. Raises UsageError unless it has this ending, and is no folder."""
    path = Path(output)
    if path.suffix.lower() != ending or path.is_dir():
        raise UsageError(f"{output} is no name for {what}: end it in {ending}.")
    return path


def check_free(path: Path, is_ours: Callable[[Path], bool], what: str) -> None:
    """Raise UsageError if a file is there that is not one of ours."""
    if path.is_file() and not is_ours(path):
        raise UsageError(f"{path} is there and no {what} that Duetto wrote: it would be lost. Give another --output.")


@contextmanager
def beside(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to, which replaces `path` once it is complete; until then `path` is unchanged,
    and a command that is ended leaves nothing. Raises OSError.

    It is in a new folder beside `path`, of a random name: in a stranger's folder any other name may be a link.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:  # it, or a folder above it, is a file
        raise NotADirectoryError(errno.ENOTDIR, "a part of its path is a file, not a folder", str(path)) from error
    with TemporaryDirectory(prefix=f".{path.stem}-", dir=path.parent) as folder:
        temporary = Path(folder) / path.name
        yield temporary
        temporary.replace(path)


def publish(path: Path, content: str) -> None:
    """Write a text; see `beside`. Raises DuettoError if the disk refuses."""
    try:
        with beside(path) as temporary:
            temporary.write_bytes(content.encode())
    except OSError as error:
        raise DuettoError(f"{path} cannot be written: {error.strerror}. Give another --output.") from error
