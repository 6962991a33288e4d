"""Write files and folders atomically.

Each step of writing a checkpoint is one call of `os` in this module, so that tests can kill the process between any two
calls.
"""
# ruff: noqa: PTH102, PTH104, PTH106, PTH108
# Tests count these calls, and pathlib would hide them.

import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from duetto.errors import DuettoError, UsageError

CHECKPOINT_FILE = re.compile(r"[a-z]+(-\d{12})?\.(json|safetensors)")
TEMPORARY = ".tmp-"  # prefix of files that are incomplete or will be deleted; they are never read


# ------------------------------------------------------------------------------------------------ checkpoints


def write_file(path: Path, data: bytes) -> None:
    """Write a file durably. If this raises, part of the file may exist.

    An existing file of this name is deleted first: if it is a link, writing would change the file to which it leads.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    with suppress(FileNotFoundError):
        os.unlink(path)
    descriptor = os.open(path, flags, 0o666)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def publish_file(path: Path, data: bytes) -> None:
    """Write a file completely or not at all. It is on the disk when this returns."""
    temporary = path.with_name(TEMPORARY + path.name)
    write_file(temporary, data)
    move(temporary, path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Wait until the folder's list of file names is on the disk."""
    if os.name == "nt":  # Windows cannot open a folder; its file system journals the names
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Create a folder durably if it is missing. Its parent must exist."""
    if folder.is_dir():
        return
    os.mkdir(folder)
    sync_folder(folder.parent)


def move(source: Path, target: Path) -> None:
    """Rename a file or folder atomically. Both paths must be in one file system."""
    os.rename(source, target)


def set_aside(path: Path) -> None:
    """Give a file or folder a temporary name in one step. `sweep` deletes it later."""
    move(path, path.with_name(f"{TEMPORARY}{path.name}-{secrets.token_hex(4)}"))


def sweep(folder: Path) -> None:
    """Delete the temporary files in a folder: those of killed processes and of `set_aside`."""
    for path in sorted(folder.glob(f"{TEMPORARY}*")):
        remove(path)


def remove(path: Path) -> None:
    """Delete a file or a checkpoint's folder. Keep a folder that also contains other files."""
    if path.is_dir() and not path.is_symlink():
        for child in sorted(path.iterdir()):
            if CHECKPOINT_FILE.fullmatch(child.name) and not child.is_dir():
                os.unlink(child)
        with suppress(OSError):  # it has other files
            os.rmdir(path)
    else:
        os.unlink(path)


# ------------------------------------------------------------------------------------------------ output of commands
@contextmanager
def staging_folder(path: Path, overwrite: bool = False) -> Iterator[Path]:
    """Yield a hidden folder next to `path`, and rename it to `path` when the block ends.

    If the block raises, the hidden folder is deleted. With `overwrite`, it replaces a dataset at `path`.

    Raises:
        UsageError: The folder cannot be made.
        DuettoError: `path` was created in the meantime, or writing fails. The hidden folder stays, and the message
            names it.
    """
    path = path.absolute()
    folder = path.with_name(f".{path.name}.partial-{secrets.token_hex(4)}")
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise UsageError(f"{path} cannot be made: {error.strerror}. Choose another folder.") from error
    try:
        yield folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    old = folder.with_name(f"{folder.name}.old")
    try:
        if overwrite and path.is_dir():
            path.rename(old)
        folder.rename(path)
        sync_folder(path.parent)
    except OSError as error:
        if old.exists() and not path.exists():
            old.rename(path)
        raise DuettoError(f"{path} cannot be written: {error.strerror}. Its content is in {folder}.") from error
    with suppress(OSError):
        remove(old)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces `path` when the block ends. If the block raises, `path` is unchanged.

    The temporary path is in a new folder with a random name. In another user's folder, a file with a predictable name
    could be a link of that user. Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{path.stem}-", dir=path.parent) as folder:
        temporary = Path(folder) / path.name
        yield temporary
        temporary.replace(path)


def write_output(path: Path, text: str) -> None:
    """Write a command's output, a text file. Raises DuettoError if writing fails."""
    try:
        with replacing(path) as temporary:
            temporary.write_bytes(text.encode())
    except OSError as error:
        raise DuettoError(f"{path} cannot be written: {error.strerror}. Give another --output.") from error


def check_suffix(output: str | Path, suffix: str, content: str) -> Path:
    """Return `output` as a path. Raises UsageError if it does not end in `suffix` or is a folder."""
    path = Path(output)
    if path.suffix.lower() != suffix or path.is_dir():
        raise UsageError(f"{output} cannot be the name of {content}: end it in {suffix}.")
    return path


def check_replaceable(path: Path, is_ours: Callable[[Path], bool], content: str) -> None:
    """Raise UsageError if `path` is a file that Duetto did not write, DuettoError if it cannot be read."""
    try:
        foreign = path.is_file() and not is_ours(path)
    except OSError as error:
        raise DuettoError(f"{path} cannot be read: {error.strerror}. Give another --output.") from error
    if foreign:
        raise UsageError(f"{path} exists and is no {content} that Duetto wrote. Give another --output.")
