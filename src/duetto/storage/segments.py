"""The experience in checkpoints: each row is written once, into the segment of the first checkpoint that has it."""

import re
from pathlib import Path

import numpy as np

from duetto.storage.manifest import FileRecord, Manifest, MemoryRecord, SegmentRecord
from duetto.storage.states import decode_arrays, encode_arrays

Segment = dict[str, np.ndarray]

_SEGMENT = re.compile(r"segment-(\d{12,})\.safetensors")


def extend(
    previous: list[SegmentRecord],
    covered: np.ndarray,
    segment: Segment | None,
    window: tuple[np.ndarray, int],
    name: str,
) -> tuple[MemoryRecord, dict[str, bytes]]:
    """Return what a checkpoint needs to rebuild its memory, and the content of the new segment file by its name.

    Raises ValueError if rows that the memory holds, the newest `rows` of the `written` ones, are in no segment.
    """
    written, rows = np.asarray(window[0]), int(window[1])
    if written.shape != covered.shape:
        raise ValueError(f"memory_window speaks of {written.shape} environments, the store of {covered.shape}")
    start, count = (covered, np.zeros_like(covered)) if segment is None else (segment["start"], segment["count"])
    oldest = np.maximum(written - rows, 0)
    if start.shape != written.shape or count.shape != written.shape or np.any(start + count != written):
        raise ValueError(f"a segment from {start} with {count} rows does not end at the {written} rows written")
    if np.any(start > np.maximum(covered, oldest)):
        raise ValueError(
            f"a segment from {start} leaves a gap: {covered} rows are saved, rows from {oldest} are needed"
        )
    segments = [record for record in previous if record.is_needed(oldest)]
    if segment is None or not np.any(count):
        return MemoryRecord(written.tolist(), rows, segments), {}
    data = encode_arrays(segment)
    segments.append(SegmentRecord(FileRecord.of(name, data), start.tolist(), count.tolist()))
    return MemoryRecord(written.tolist(), rows, segments), {name: data}


def read(folder: Path, record: SegmentRecord) -> Segment:
    """Read and verify one segment. Raises DamagedError."""
    return decode_arrays(record.file.read(folder))


def listed(history: dict[int, Manifest]) -> set[str]:
    """Return the names of all segment files that any of the checkpoints needs."""
    return {record.file.name for manifest in history.values() for record in needed(manifest)}


def needed(manifest: Manifest) -> list[SegmentRecord]:
    """Return the segments that a checkpoint needs, oldest first."""
    return manifest.memory.segments if manifest.memory else []


def next_name(taken: set[str]) -> str:
    """Return a file name that was never used, so that no manifest, not even a damaged one, can mean another file."""
    numbers = [int(match[1]) for name in taken if (match := _SEGMENT.fullmatch(name))]
    return f"segment-{max(numbers, default=0) + 1:012}.safetensors"


def present(folder: Path) -> set[str]:
    """Return the names of all segment files in a folder."""
    return {path.name for path in folder.glob("segment-*") if _SEGMENT.fullmatch(path.name)}
