"""The files of a checkpoint, and its manifest with the checksums that prove them undamaged.

    step-000000012000/       state.json, state.safetensors, manifest.json
    memory/                  segment-000000000001.safetensors, ...

`manifest.json` is `{"content": {...}, "sha256": checksum of the content}`, written last. A change of any byte of it, or
of any file that it lists, is noticed.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from duetto.errors import CheckpointError
from duetto.storage import atomic_io, safe_open
from duetto.storage.tree_codec import decode_arrays

FORMAT = "duetto-checkpoint"
VERSION = 1
MANIFEST = "manifest.json"
SEGMENT_FILE = re.compile(r"segment-(\d{12,})\.safetensors")
Segment = dict[str, np.ndarray]
_LARGEST = 2**27  # bytes; a hundred segments of a hundred environments take a tenth of a million


class DamagedError(CheckpointError):
    """Part of a checkpoint is missing, cut off or changed; an older one may be whole."""


class MemoryDamagedError(DamagedError):
    """A checkpoint's experience is damaged; its state, with the parameters, is whole."""


@dataclass(frozen=True)
class FileRecord:
    """One file with its size and checksum."""

    name: str
    size: int  # bytes
    sha256: str

    @classmethod
    def of(cls, name: str, data: bytes) -> "FileRecord":
        """Describe a file of this content."""
        return cls(name, len(data), _sha256(data))

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "FileRecord":
        """Read a record of a manifest. Raises ValueError, KeyError or TypeError if it is malformed."""
        if not atomic_io.CHECKPOINT_FILE.fullmatch(record["name"]):  # such as ../../file
            raise ValueError(f"{record['name']!r} is no file of a checkpoint")
        return cls(record["name"], _count(record["size"]), record["sha256"])

    def read(self, folder: Path) -> bytes:
        """Return the file's content. Raises DamagedError if it differs from the record."""
        path = folder / self.name
        try:
            with os.fdopen(safe_open.open_file(path, os.O_RDONLY), "rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size != self.size:
                    raise DamagedError(f"{path} is damaged: it has {size} bytes instead of {self.size}.")
                data = file.read(size)
        except FileNotFoundError:
            raise DamagedError(f"{path} is missing.") from None
        except OSError as error:
            raise DamagedError(f"{path} cannot be read: {error.strerror}.") from error
        except MemoryError as error:
            raise CheckpointError(f"{path} has {self.size:,} bytes, more than this machine has memory for.") from error
        if _sha256(data) != self.sha256:
            raise DamagedError(f"{path} is damaged: its checksum is wrong.")
        return data


@dataclass(frozen=True)
class SegmentRecord:
    """One file of experience: the rows [start, start + count) of each environment."""

    file: FileRecord
    start: list[int]  # (num_envs,)
    count: list[int]  # (num_envs,)

    def is_needed(self, oldest: np.ndarray) -> bool:
        """Return whether it holds a row that is not older than `oldest`, (num_envs,), in any environment."""
        count = np.array(self.count)
        return bool(np.any((count > 0) & (np.array(self.start) + count > oldest)))

    def read(self, folder: Path) -> Segment:
        """Read and verify the segment. Raises DamagedError."""
        return decode_arrays(self.file.read(folder))


@dataclass(frozen=True)
class MemoryRecord:
    """The experience that a checkpoint needs: the newest `rows` of the `written` rows of each environment."""

    written: list[int]  # (num_envs,)
    rows: int
    segments: list[SegmentRecord]  # oldest first


@dataclass(frozen=True)
class Manifest:
    """The files and the experience that belong to one checkpoint."""

    step: int
    files: list[FileRecord]
    memory: MemoryRecord | None

    @classmethod
    def of(cls, step: int, files: Mapping[str, bytes], memory: MemoryRecord | None = None) -> "Manifest":
        """Describe a checkpoint of these file contents."""
        return cls(step, [FileRecord.of(name, data) for name, data in files.items()], memory)

    @property
    def segments(self) -> list[SegmentRecord]:
        """The segments of experience that the checkpoint needs, oldest first."""
        return self.memory.segments if self.memory else []

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """Read a checkpoint's manifest.

        Raises DamagedError if a byte was changed, CheckpointError if it is of another format.
        """
        path = folder / MANIFEST
        content = read_sealed(path)
        try:
            if (written := (content.get("format"), content.get("version"))) != (FORMAT, VERSION):
                raise CheckpointError(
                    f"{path} has the format {written[0]} {written[1]}, and this Duetto reads {FORMAT} {VERSION}. "
                    "Use the version of Duetto that wrote it."
                )
            files = [FileRecord.from_json(record) for record in content["files"]]
            return cls(_count(content["step"]), files, _memory(content["memory"]))
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedError(f"{path} is damaged: {error}.") from error


def write_folder(target: Path, files: Mapping[str, bytes], manifest: Manifest) -> Path:
    """Write a checkpoint durably under a temporary name next to its target. Return that path, ready to be renamed."""
    temporary = target.with_name(atomic_io.TEMPORARY + target.name)
    atomic_io.make_folder(temporary)
    for name, data in files.items():
        atomic_io.write_file(temporary / name, data)
    content = {"format": FORMAT, "version": VERSION, **asdict(manifest)}
    atomic_io.write_file(temporary / MANIFEST, seal(content))
    atomic_io.sync_folder(temporary)
    return temporary


def read_folder(folder: Path) -> tuple[Manifest, dict[str, bytes]]:
    """Read a checkpoint and verify every file. Raises as `Manifest.read`."""
    manifest = Manifest.read(folder)
    return manifest, {record.name: record.read(folder) for record in manifest.files}


def segment_name(taken: Iterable[str]) -> str:
    """Return the name of a new segment's file, with a higher number than all taken names."""
    numbers = [int(match[1]) for name in taken if (match := SEGMENT_FILE.fullmatch(name))]
    return f"segment-{max(numbers, default=0) + 1:012}.safetensors"


def _memory(record: dict[str, Any] | None) -> MemoryRecord | None:
    if record is None:
        return None
    written = [_count(number) for number in record["written"]]
    segments = [
        SegmentRecord(
            FileRecord.from_json(segment["file"]),
            *(_counts(segment[name], len(written)) for name in ("start", "count")),
        )
        for segment in record["segments"]
    ]
    return MemoryRecord(written, _count(record["rows"]), segments)


def _counts(value: list[Any], length: int) -> list[int]:
    if len(value) != length:
        raise ValueError(f"it has {len(value)} environments and {length}")
    return [_count(number) for number in value]


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**53:
        raise ValueError(f"{value!r} is no count")
    return value


def read_sealed(path: Path) -> dict[str, Any]:
    """Read the content of a manifest. Raises DamagedError if it is missing or its checksum is wrong."""
    try:
        return unseal(safe_open.read_file(path, _LARGEST))
    except FileNotFoundError:
        raise DamagedError(f"{path} is missing.") from None
    except OSError as error:
        raise DamagedError(f"{path} cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError, RecursionError):
        raise DamagedError(f"{path} is damaged: it is not what was written.") from None


def seal(content: dict[str, Any]) -> bytes:
    """Return the bytes of a manifest of this content."""
    document = {"content": content, "sha256": _sha256(_canonical(content))}
    return _canonical(document)


def unseal(data: bytes) -> dict[str, Any]:
    """Undo `seal`. Raises ValueError, KeyError, TypeError or RecursionError unless every byte is what was written."""
    document = json.loads(data)
    content = document["content"]
    if not isinstance(content, dict) or seal(content) != data:
        raise ValueError("the checksum is wrong")
    return content


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
