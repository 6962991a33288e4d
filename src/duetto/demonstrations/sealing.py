"""The seal of a folder of demonstrations: `manifest.json` has the size and the checksum of its files, as checkpoints'.

It is written last. A change of any byte of any file is noticed when the folder is read. Minari does not look at it.
"""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path
from typing import Any

from duetto.demonstrations.form import DATA, METADATA
from duetto.errors import UsageError
from duetto.storage import disk
from duetto.storage.manifest import MANIFEST, FileRecord, seal, unseal

_FORMAT, _VERSION = "duetto-demonstrations", 1


def write_seal(folder: Path) -> None:
    """Seal what is in the folder, durably."""
    records = [vars(_record(folder / name)) for name in (METADATA, DATA)]
    disk.publish_file(folder / MANIFEST, seal({"format": _FORMAT, "version": _VERSION, "files": records}))


def check_seal(folder: Path) -> None:
    """Raise ValueError unless every file is the one that was sealed. The folder has to have a seal."""
    check_own_file(folder / MANIFEST)
    try:
        content = unseal((folder / MANIFEST).read_bytes())
        if content["version"] > _VERSION:
            raise UsageError(f"{folder / MANIFEST} was written by a newer Duetto. Update Duetto.")
        if content["format"] != _FORMAT:
            raise ValueError
        sealed = {entry["name"]: FileRecord(**entry) for entry in content["files"]}
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError(f"{MANIFEST} is not what was written") from None
    for name in (METADATA, DATA):
        check_own_file(folder / name)
        if _record(folder / name) != sealed.get(name):
            raise ValueError(f"{name} is not what was written: its checksum is wrong")


def is_sealed(folder: Path) -> bool:
    """Whether there is a seal, right or wrong."""
    path = folder / MANIFEST
    return path.exists() or path.is_symlink()


def check_own_file(path: Path) -> None:
    """Raise UsageError where a link, a pipe or a device is in a file's place; FileNotFoundError where nothing is."""
    mode = path.lstat().st_mode
    if not stat.S_ISREG(mode):
        kind = "a link" if stat.S_ISLNK(mode) else "no plain file"
        raise UsageError(f"{path} is {kind}. What is read from a folder has to be in it: copy the file there.")


def _record(path: Path) -> FileRecord:
    with path.open("rb") as file:
        digest: Any = hashlib.file_digest(file, "sha256")
        return FileRecord(path.name, file.tell(), digest.hexdigest())
