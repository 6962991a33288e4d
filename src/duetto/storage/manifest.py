"""The files of a checkpoint, and its manifest, which lists them with checksums.

    step-000000012000/       state.json, state.safetensors, manifest.json
    memory/                  segment-000000000001.safetensors, ...

`manifest.json` is `{"content": {...}, "sha256": checksum of the content}`, written last. The checksums
detect every changed byte, in the manifest and in the files that it lists.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from duetto.errors import CheckpointError, DuettoError
from duetto.functional import state_schema
from duetto.functional.state_schema import ListOf
from duetto.storage import atomic_io, safe_open

FORMAT = "duetto-checkpoint"
VERSION = 1
MANIFEST = "manifest.json"
SEGMENT_FILE = re.compile(r"segment-(\d{12,})\.safetensors")
Segment = dict[str, np.ndarray]
FILE: dict[str, Any] = {"name": str, "size": int, "sha256": str}
_SEGMENT = {"file": FILE, "start": ListOf(int), "count": ListOf(int)}
_FORM = {"step": int, "files": ListOf(FILE), "segments": ListOf(_SEGMENT)}
_LARGEST = 2**27  # max bytes of a manifest; with 100 segments of 100 environments it has 100 kB


class DamagedError(CheckpointError):
    """A file of a checkpoint is missing, truncated or changed; an older checkpoint may be intact."""


@dataclass(frozen=True)
class FileRecord:
    """One file with its size and checksum."""

    name: str
    size: int  # bytes
    sha256: str

    @classmethod
    def of(cls, name: str, data: bytes) -> "FileRecord":
        """Return the record of a file with this content."""
        return cls(name, len(data), hashlib.sha256(data).hexdigest())

    def __post_init__(self) -> None:
        """Raise ValueError for a name that no checkpoint file can have, such as ../../file."""
        if not atomic_io.CHECKPOINT_FILE.fullmatch(self.name):
            raise ValueError(f"{self.name!r} is no file of a checkpoint")

    def read(self, folder: Path) -> bytes:
        """Return the file's content. Raises DamagedError if it differs from the record."""
        data = _read(folder / self.name, self.size)
        if FileRecord.of(self.name, data) != self:
            raise DamagedError(f"{folder / self.name} is damaged: its size or its checksum is wrong.")
        return data


@dataclass(frozen=True)
class SegmentRecord:
    """One file of experience: the rows [start, start + count) of each environment."""

    file: FileRecord
    start: list[int]  # (num_envs,)
    count: list[int]  # (num_envs,)

    @property
    def end(self) -> np.ndarray:
        """For each environment, the number of the first row after the segment: start + count, (num_envs,)."""
        return np.add(self.start, self.count)

    def is_needed(self, oldest: np.ndarray) -> bool:
        """Return whether the segment has a row numbered `oldest[i]` or higher of any environment i."""
        return bool(np.any((np.array(self.count) > 0) & (self.end > oldest)))


@dataclass(frozen=True)
class Manifest:
    """The files of one checkpoint, and the segments of experience that it needs, oldest first."""

    step: int
    files: list[FileRecord]
    segments: list[SegmentRecord]

    @classmethod
    def of(cls, step: int, files: Mapping[str, bytes], segments: Sequence[SegmentRecord] = ()) -> "Manifest":
        """Return the manifest of a checkpoint with these file contents."""
        return cls(step, [FileRecord.of(name, data) for name, data in files.items()], list(segments))

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """Read a checkpoint's manifest.

        Raises DamagedError if a byte was changed, CheckpointError if it has another format.
        """
        path = folder / MANIFEST
        content = read_sealed(path)
        if (written := (content.get("format"), content.get("version"))) != (FORMAT, VERSION):
            raise CheckpointError(
                f"{path} has the format {written[0]} {written[1]}, and this Duetto reads {FORMAT} {VERSION}. "
                "Use the version of Duetto that wrote it."
            )
        try:
            state_schema.check(content, _FORM, MANIFEST)
            segments = [
                SegmentRecord(FileRecord(**each["file"]), each["start"], each["count"]) for each in content["segments"]
            ]
            if len({len(counts) for each in segments for counts in (each.start, each.count)}) > 1:
                raise ValueError("its segments have different numbers of environments")
            return cls(content["step"], [FileRecord(**each) for each in content["files"]], segments)
        except (CheckpointError, ValueError, TypeError) as error:
            raise DamagedError(f"{path} is damaged: {error}") from error


def write_folder(target: Path, files: Mapping[str, bytes], manifest: Manifest) -> Path:
    """Write a checkpoint durably under a temporary name next to its target. Return that path, ready to be renamed."""
    temporary = target.with_name(atomic_io.TEMPORARY + target.name)
    atomic_io.make_folder(temporary)
    content = {"format": FORMAT, "version": VERSION, **asdict(manifest)}
    for name, data in {**files, MANIFEST: seal(content)}.items():
        atomic_io.write_file(temporary / name, data)
    atomic_io.sync_folder(temporary)
    return temporary


def read_folder(folder: Path) -> tuple[Manifest, dict[str, bytes]]:
    """Read a checkpoint and verify every file. Raises the same errors as `Manifest.read`."""
    manifest = Manifest.read(folder)
    return manifest, {record.name: record.read(folder) for record in manifest.files}


def read_sealed(path: Path) -> dict[str, Any]:
    """Read the content of a manifest. Raises DamagedError if it is missing or its checksum is wrong."""
    data = _read(path, _LARGEST)
    with suppress(ValueError, KeyError, TypeError, RecursionError):
        content = json.loads(data)["content"]
        if isinstance(content, dict) and seal(content) == data:
            return content
    raise DamagedError(f"{path} is damaged: it is not what was written.")


def _read(path: Path, most: int) -> bytes:
    """Return the content of a file. Raises DamagedError if it cannot be read or has more than `most` bytes."""
    try:
        return safe_open.read_file(path, most)
    except FileNotFoundError:
        raise DamagedError(f"{path} is missing.") from None
    except (OSError, MemoryError, DuettoError) as error:
        raise DamagedError(f"{path} cannot be read: {str(error) or 'the memory is too small for it'}") from error


def seal(content: dict[str, Any]) -> bytes:
    """Return the bytes of a manifest with this content."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return f'{{"content":{text},"sha256":"{hashlib.sha256(text.encode()).hexdigest()}"}}'.encode()
