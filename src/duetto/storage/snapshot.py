"""One folder of files that is there whole or not at all, and proves it: what a checkpoint is on disk."""

import errno
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from duetto.errors import CheckpointError, to_resume
from duetto.storage import disk
from duetto.storage.manifest import MANIFEST, DamagedError, FileRecord, Manifest

_CHECKPOINT = re.compile(r"step-(\d{12,})(\.replaced)?")


def name(step: int) -> str:
    """Return the name of a checkpoint's folder."""
    return f"step-{step:012}"


def replaced(path: Path) -> Path:
    """Return where a checkpoint waits, and still counts, while a new one of the same step takes its place."""
    return path.with_name(path.name + ".replaced")


def listing(folder: Path) -> list[tuple[int, Path]]:
    """Return step and path of every checkpoint in a folder, replaced ones too."""
    paths = sorted(folder.glob("step-*"))
    return [(int(match[1]), path) for path in paths if (match := _CHECKPOINT.fullmatch(path.name))]


def find(folder: Path, step: int) -> Path:
    """Return the folder of the checkpoint at a step."""
    path = folder / name(step)
    return replaced(path) if replaced(path).exists() and not path.exists() else path


def describe(files: Mapping[str, bytes]) -> list[FileRecord]:
    """Return the records of files that are about to be written."""
    return [FileRecord.of(name, data) for name, data in files.items()]


def write(target: Path, files: Mapping[str, bytes], manifest: Manifest) -> Path:
    """Write a folder durably under a temporary name beside its target, and return it, ready to be renamed."""
    temporary = target.with_name(disk.TEMPORARY + target.name)
    disk.make_folder(temporary)
    for name, data in files.items():
        disk.write_file(temporary / name, data)
    disk.write_file(temporary / MANIFEST, manifest.to_bytes())
    disk.sync_folder(temporary)
    return temporary


def read(folder: Path) -> tuple[Manifest, dict[str, bytes]]:
    """Read a folder and verify every file. Raises DamagedError, or CheckpointError if it is not ours to read."""
    manifest = Manifest.read(folder)
    return manifest, {record.name: record.read(folder) for record in manifest.files}


def refusal(what: str, folder: Path, size: int, error: OSError) -> CheckpointError:
    """Say that the disk did not take `size` bytes, why, and what to do."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return CheckpointError(
        f"{what} could not be written to {folder}: {error.strerror or error}. It needs {max(size, 1e5) / 1e6:.1f} MB. "
        f"{'Free some space' if full else 'Put that right'}, then go on with: {to_resume(folder.parent)}"
    )


def readable_before(folder: Path, step: int) -> dict[int, Manifest]:
    """Return the manifests of the checkpoints before a step, ascending, without those that are damaged."""
    manifests = {}
    for older in sorted({older for older, _ in listing(folder) if older < step}):
        with suppress(DamagedError):
            manifests[older] = Manifest.read(find(folder, older))
    return manifests
