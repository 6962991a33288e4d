"""The few file operations that a checkpoint is made of.

Everything that changes the disk goes through this module's `os`, one operation at a time, so that tests can end the
process between any two of them.
"""
# ruff: noqa: PTH102, PTH104, PTH106, PTH108
# (pathlib would hide the operations that tests count.)

import os
from pathlib import Path

TEMPORARY = ".tmp-"  # what begins like this is unfinished or on its way out, and never read


def write_file(path: Path, data: bytes) -> None:
    """Write a whole new file and wait until the disk has it. The file may be half there if this raises.

    What has its name makes way, and is not written over: it may be a link to another file.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags, 0o666)
    except FileExistsError:
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
    """Make a file appear whole or not at all. It is durable when this returns."""
    temporary = path.with_name(TEMPORARY + path.name)
    write_file(temporary, data)
    move(temporary, path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Wait until the disk knows which names are in the folder."""
    if os.name == "nt":  # Windows cannot open a folder, and keeps its names in a journal
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Create a folder durably; nothing happens if it is there. The one above it must be: it may have been moved."""
    if folder.is_dir():
        return
    os.mkdir(folder)
    sync_folder(folder.parent)


def move(source: Path, target: Path) -> None:
    """Rename in one step within a file system. The target is a new name."""
    os.rename(source, target)


def set_aside(path: Path) -> None:
    """Take a file or folder out of sight in one step. `sweep` deletes it later."""
    number = 0
    while (target := path.with_name(f"{TEMPORARY}{path.name}-{number}")).exists():
        number += 1
    move(path, target)


def sweep(folder: Path) -> None:
    """Delete everything temporary in a folder: what dead processes left, what was set aside."""
    if not folder.is_dir():
        return
    for path in sorted(folder.iterdir()):
        if path.name.startswith(TEMPORARY):
            remove(path)


def remove(path: Path) -> None:
    """Delete a file, or a folder and all that is in it."""
    if path.is_dir() and not path.is_symlink():
        for child in sorted(path.iterdir()):
            remove(child)
        os.rmdir(path)
    else:
        os.unlink(path)
