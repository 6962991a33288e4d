"""The manifest of a checkpoint: the files that belong to it, with the checksums that prove them undamaged.

`manifest.json` is `{"content": {...}, "sha256": checksum of the content}`, written last. A change of any byte of it, or
of any file that it lists, is noticed.
"""

import hashlib
import json
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from duetto.errors import CheckpointError
from duetto.storage import within

FORMAT = "duetto-checkpoint"
VERSION = 1
MANIFEST = "manifest.json"
_LARGEST = 2**27  # bytes; a hundred segments of a hundred environments take a tenth of a million
_FILE_NAME = re.compile(r"[a-z]+(-\d{12})?\.(json|safetensors)")  # a stranger's manifest must not name ../../file


class DamagedError(CheckpointError):
    """Part of a checkpoint is missing, cut off or changed; an older one may be whole."""


class MemoryDamagedError(DamagedError):
    """A checkpoint's experience is damaged; its state, parameters among it, is whole."""


@dataclass(frozen=True)
class FileRecord:
    """One file and the proof of its content."""

    name: str
    size: int  # bytes
    sha256: str

    @classmethod
    def of(cls, name: str, data: bytes) -> "FileRecord":
        """Describe content that is about to be written."""
        return cls(name, len(data), _sha256(data))

    def read(self, folder: Path) -> bytes:
        """Return the file's content. Raises DamagedError unless it is the one that was recorded."""
        path = folder / self.name
        try:
            with os.fdopen(within.open_file(path, os.O_RDONLY), "rb") as file:
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
        """Whether it holds a row that is not older than `oldest`, (num_envs,), in any environment."""
        count = np.array(self.count)
        return bool(np.any((count > 0) & (np.array(self.start) + count > oldest)))


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

    def to_bytes(self) -> bytes:
        """Return the content of `manifest.json`."""
        return seal({"format": FORMAT, "version": VERSION, **asdict(self)})

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """Read a checkpoint's manifest.

        Raises DamagedError if it is not what was written, CheckpointError if it is whole but not ours to read.
        """
        path = folder / MANIFEST
        try:
            content = unseal(within.read_file(path, _LARGEST))
        except FileNotFoundError:
            raise DamagedError(f"{path} is missing.") from None
        except OSError as error:
            raise DamagedError(f"{path} cannot be read: {error.strerror}.") from error
        except (ValueError, KeyError, TypeError, RecursionError):
            raise DamagedError(f"{path} is damaged: it is not what was written.") from None
        try:
            _check_format(content, path)
            return cls(_count(content["step"]), [_file(f) for f in content["files"]], _memory(content["memory"]))
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedError(f"{path} is damaged: {error}.") from error


def _check_format(content: dict[str, Any], path: Path) -> None:
    if content.get("format") != FORMAT:
        raise CheckpointError(f"{path} was not written by Duetto. Choose the folder of a Duetto run.")
    if content["version"] > VERSION:
        raise CheckpointError(
            f"{path} was written by a newer Duetto (checkpoint format {content['version']}, this one reads {VERSION}). "
            "Install a newer Duetto."
        )


def _memory(record: dict[str, Any] | None) -> MemoryRecord | None:
    if record is None:
        return None
    written = [_count(number) for number in record["written"]]
    segments = [
        SegmentRecord(_file(one["file"]), *(_counts(one[name], len(written)) for name in ("start", "count")))
        for one in record["segments"]
    ]
    return MemoryRecord(written, _count(record["rows"]), segments)


def _file(record: dict[str, Any]) -> FileRecord:
    if not _FILE_NAME.fullmatch(record["name"]):
        raise ValueError(f"{record['name']!r} is no file of a checkpoint")
    return FileRecord(record["name"], _count(record["size"]), record["sha256"])


def _counts(value: list[Any], length: int) -> list[int]:
    if len(value) != length:
        raise ValueError(f"it speaks of {len(value)} environments and of {length}")
    return [_count(number) for number in value]


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**53:
        raise ValueError(f"{value!r} is no count")
    return value


def seal(content: dict[str, Any]) -> bytes:
    """The bytes of a manifest of this content."""
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
