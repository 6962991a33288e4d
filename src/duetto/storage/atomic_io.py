"""Write files and folders atomically.

A checkpoint's operations go through this module's `os`, one at a time, so that tests can end the process between any
two of them.
"""
# ruff: noqa: PTH102, PTH104, PTH106, PTH108
# (pathlib would hide the operations that tests count.)

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
TEMPORARY = ".tmp-"  # prefix of names that are unfinished or on their way out, and never read


# ------------------------------------------------------------------------------------------------ checkpoints


def write_file(path: Path, data: bytes) -> None:
    """Write a new file durably. If this raises, part of the file may exist.

    A file of that name is removed, not written over: it may be a link to another file.
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
    """Write a file whole or not at all. It is durable when this returns."""
    temporary = path.with_name(TEMPORARY + path.name)
    write_file(temporary, data)
    move(temporary, path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Wait until the names in the folder are on the disk."""
    if os.name == "nt":  # Windows cannot open a folder, and keeps its names in a journal
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
    """Rename in one step within a file system."""
    os.rename(source, target)


def set_aside(path: Path) -> None:
    """Give a file or folder a temporary name in one step. `sweep` deletes it later."""
    move(path, path.with_name(f"{TEMPORARY}{path.name}-{secrets.token_hex(4)}"))


def sweep(folder: Path) -> None:
    """Delete everything with a temporary name in a folder: left by dead processes, or set aside."""
    if not folder.is_dir():
        return
    for path in sorted(folder.iterdir()):
        if path.name.startswith(TEMPORARY):
            remove(path)


def remove(path: Path) -> None:
    """Delete a file, or a folder of a checkpoint's files. Other files in it stay, and the folder with them."""
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
    """Yield a hidden folder next to `path` that gets its name when the block ends.

    It is removed if the block raises. With `overwrite` it replaces a folder of a checkpoint's files at `path`.

    Raises:
        UsageError: No folder can be made there.
        DuettoError: `path` was created meanwhile, or writing fails. The hidden folder stays; the message names it.
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
        if overwrite and path.exists():
            path.rename(old)
        folder.rename(path)
        sync_folder(path.parent)
    except OSError as error:
        if old.exists() and not path.exists():
            old.rename(path)
        raise DuettoError(f"{path} cannot be written: {error.strerror}. Its content is in {folder}.") from error
    if old.exists():
        with suppress(OSError):
            remove(old)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces `path` when the block ends. If the block raises, `path` is unchanged.

    The temporary path is in a new folder of a random name: in a stranger's folder any other name may be a link. Raises
    OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{path.stem}-", dir=path.parent) as folder:
        temporary = Path(folder) / path.name
        yield temporary
        temporary.replace(path)


def write_output(path: Path, text: str) -> None:
    """Write the text file that a command was asked for. Raises DuettoError if the disk refuses."""
    try:
        with replacing(path) as temporary:
            temporary.write_bytes(text.encode())
    except OSError as error:
        raise DuettoError(f"{path} cannot be written: {error.strerror}. Give another --output.") from error


def check_suffix(output: str | Path, suffix: str, content: str) -> Path:
    """Return `output` as a path. Raises UsageError if it has another suffix or is a folder."""
    path = Path(output)
    if path.suffix.lower() != suffix or path.is_dir():
        raise UsageError(f"{output} is no name for {content}: end it in {suffix}.")
    return path


def check_replaceable(path: Path, is_ours: Callable[[Path], bool], content: str) -> None:
    """Raise UsageError if there is a file that Duetto did not write."""
    if path.is_file() and not is_ours(path):
        raise UsageError(
            f"{path} is there and no {content} that Duetto wrote: it would be lost. Give another --output."
        )
