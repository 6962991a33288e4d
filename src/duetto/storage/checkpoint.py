"""The checkpoints of a run: exact, and safe against kill -9, power cuts and full disks.

    checkpoints/
        step-000000012000/       state.json, state.safetensors, manifest.json
        memory/                  segment-000000000001.safetensors, ...: the replay buffer, each step written once
        best/000000000004/       state.*, info.json, manifest.json: the parameters of the best evaluation

If a second checkpoint is saved at the same step, its folder is `step-000000012000-2`, and the first one is deleted.

No file is changed in place. A new checkpoint is written under a temporary name, synced, and renamed in one step. Old
ones are deleted only afterwards. So the newest folder is complete at every moment, and readers need no lock.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from duetto.errors import CheckpointError, to_resume
from duetto.storage import atomic_io, manifest, safe_open
from duetto.storage.manifest import DamagedError, FileRecord, Manifest, Segment, SegmentRecord
from duetto.storage.tree_codec import State, decode_arrays, decode_tree, encode_arrays, encode_tree

_FOLDER = re.compile(r"step-(\d{12,})(?:-(\d+))?")


@dataclass(frozen=True)
class Loaded:
    """A checkpoint, or the parameters of the best evaluation, read and verified."""

    step: int
    state: State
    path: Path
    segments: Iterable[Segment] = ()  # oldest first; each is read when iterated, so iterate before the next save
    problems: list[str] = field(default_factory=list)  # a sentence for each newer checkpoint that is damaged
    info: State = field(default_factory=dict)  # stored with the best parameters


class CheckpointStore:
    """Saves and loads the checkpoints in `<run>/checkpoints/`.

    Only one process may save at a time (`folder_lock`); any number may load. After a load, the next save
    removes damaged checkpoints, and those that are newer than the loaded one. Without a load, the first save needs a
    folder without checkpoints.
    """

    def __init__(self, folder: Path, keep: int = 2, num_envs: int = 1) -> None:
        self.folder = folder
        self.keep = keep
        self._num_envs = num_envs
        self._memory = folder / "memory"
        self._best = folder / "best"
        self._history: dict[int, Manifest] = {}  # by step, ascending: the current checkpoint and older ones
        safe_open.check_folders((folder, self._memory, self._best))

    @property
    def covered(self) -> np.ndarray:
        """Number of each environment's steps up to the last saved or loaded checkpoint, (num_envs,) int64."""
        return np.max([np.zeros(self._num_envs, np.int64), *(each.end for each in self._segments())], axis=0)

    def steps(self) -> list[int]:
        """Return the steps of all checkpoints, including damaged ones, ascending."""
        return list(folders(self.folder))

    def path_of(self, step: int) -> Path:
        """Return the folder of a step's newest checkpoint, which need not exist."""
        return folders(self.folder).get(step, self.folder / f"step-{step:012}")

    def new_path(self, step: int) -> Path:
        """Return an unused folder for a step's next checkpoint, such as `step-000000012000-2`."""
        newest = self.path_of(step)
        match = _FOLDER.fullmatch(newest.name)
        if match is None or not newest.exists():
            return newest
        return self.folder / f"step-{step:012}-{int(match[2] or 1) + 1}"

    def save(self, step: int, state: State, segment: Segment | None = None, oldest: np.ndarray | None = None) -> Path:
        """Write a checkpoint and return its folder. It is durable when this returns.

        Args:
            step: At least the last checkpoint's step. A checkpoint of the same step is replaced.
            state: A nested dict of arrays and JSON values, as in `tree_codec`.
            segment: The experience since `covered`; None if nothing is new. It has the rows [start, start + count) of
                each environment: "start" and "count", (num_envs,) int64, and the caller's arrays.
            oldest: For each environment, the number of the first row that is still needed, (num_envs,); None if the
                run stores no experience.

        Raises CheckpointError if writing fails. Then earlier checkpoints and `covered` are unchanged, and `save` can
        be called again.
        """
        if not self._history and (steps := self.steps()):
            raise CheckpointError(
                f"{self.folder} holds checkpoints at steps {steps} of an earlier run. Resume it: "
                f"{to_resume(self.folder.parent)}, or choose another folder."
            )
        files = encode_tree("state", state)
        segments = [] if oldest is None else [record for record in self._segments() if record.is_needed(oldest)]
        new_segment: dict[str, bytes] = {}
        if segment is not None and segment["count"].any():
            name = f"segment-{max(self._segment_files(), default=0) + 1:012}.safetensors"
            new_segment[name] = encode_arrays(segment)
            record = FileRecord.of(name, new_segment[name])
            segments.append(SegmentRecord(record, segment["start"].tolist(), segment["count"].tolist()))
        target = self.new_path(step)
        description = Manifest.of(step, files, segments)
        with self._writing(f"The checkpoint at step {step}"):
            self._prepare(self._memory if new_segment else self.folder)
            for name, data in new_segment.items():
                atomic_io.write_file(self._memory / (atomic_io.TEMPORARY + name), data)
            temporary = manifest.write_folder(target, files, description)
            for name in new_segment:
                atomic_io.move(self._memory / (atomic_io.TEMPORARY + name), self._memory / name)
                atomic_io.sync_folder(self._memory)
            self._remove_others()
            atomic_io.move(temporary, target)
            self._history[step] = description
            atomic_io.sync_folder(self.folder)
        with suppress(OSError):  # the next save tries again
            self._tidy()
        return target

    def save_best(self, step: int, state: State, info: State) -> Path:
        """Write the best parameters so far and return their folder; `info` is stored with them.

        Of the earlier best parameters, only the oldest stay: the last checkpoint may refer to them. Call `keep_best`
        after the next checkpoint to remove them.

        Raises CheckpointError if writing fails. Then the previous best parameters are unchanged.
        """
        files = encode_tree("state", state) | encode_tree("info", info)
        target = self._best / f"{step:012}"
        with self._writing(f"The best parameters at step {step}"):
            self._prepare(self._best)
            temporary = manifest.write_folder(target, files, Manifest.of(step, files))
            if target.exists():
                atomic_io.set_aside(target)
            atomic_io.move(temporary, target)
            atomic_io.sync_folder(self._best)
        self.keep_best(min(self._best_steps()), step)
        return target

    def keep_best(self, *steps: int) -> None:
        """Remove all best parameters except those of these steps."""
        with suppress(OSError):  # the next call tries again
            for step in self._best_steps():
                if step not in steps:
                    atomic_io.set_aside(self._best / f"{step:012}")
            atomic_io.sweep(self._best)

    def load_latest(self, memory: bool = True) -> Loaded:
        """Load the newest undamaged checkpoint and continue from it. Raises CheckpointError if there is none.

        With `memory` False, the replay buffer is not read; acting does not need it.
        """
        problems: list[str] = []
        for step in _newest_first(self.steps):
            try:
                return self._load(step, problems, memory)
            except DamagedError as error:
                if step in self.steps():
                    problems.append(str(error))
        if problems:
            raise CheckpointError(f"No checkpoint in {self.folder} can be used:\n" + "\n".join(problems))
        raise CheckpointError(f"There is no checkpoint in {self.folder}. Is it the folder of a Duetto run?")

    def load(self, step: int, memory: bool = True) -> Loaded:
        """Load one checkpoint and continue from it. Raises CheckpointError if it is damaged or missing.

        `memory` as in `load_latest`.
        """
        if step not in (steps := self.steps()):
            known = f"It has checkpoints at {', '.join(map(str, steps))}" if steps else "It has none"
            raise CheckpointError(f"{self.folder} has no checkpoint at step {step}. {known}.")
        return self._load(step, [], memory)

    def load_best(self) -> Loaded:
        """Load the parameters of the best evaluation. Raises CheckpointError if they are damaged or missing."""
        damage = ""
        for step in _newest_first(self._best_steps):
            path = self._best / f"{step:012}"
            try:
                found, files = manifest.read_folder(path)
                return Loaded(found.step, decode_tree("state", files), path, info=decode_tree("info", files))
            except DamagedError as error:
                damage = damage or str(error)
        raise CheckpointError(f"{damage or f'{self.folder} holds no best parameters yet.'} Use the latest checkpoint.")

    def _load(self, step: int, problems: list[str], memory: bool) -> Loaded:
        path = self.path_of(step)
        description, files = manifest.read_folder(path)
        if description.step != step:
            raise DamagedError(f"{path} is damaged: it holds the checkpoint at step {description.step}.")
        state = decode_tree("state", files)
        segments = description.segments if memory else []
        for record in segments:  # verify all now, while an older checkpoint can still be chosen
            record.file.read(self._memory)
        self._history = {}
        for older, folder in folders(self.folder).items():
            with suppress(DamagedError):
                if older < step:
                    self._history[older] = Manifest.read(folder)
        self._history[step] = description
        arrays = (decode_arrays(record.file.read(self._memory)) for record in segments)
        return Loaded(step, state, path, arrays, problems)

    def _segments(self) -> list[SegmentRecord]:
        """Return the segments of the last checkpoint."""
        return self._history[max(self._history)].segments if self._history else []

    @contextmanager
    def _writing(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            with suppress(OSError):
                self._sweep()
            raise CheckpointError(
                f"{what} could not be written to {self.folder}: {error.strerror or error}. Free some space or fix "
                f"that, then resume: {to_resume(self.folder.parent)}"
            ) from error

    def _prepare(self, folder: Path) -> None:
        atomic_io.make_folder(self.folder)
        atomic_io.make_folder(folder)
        self._sweep()

    def _sweep(self) -> None:
        for folder in (self.folder, self._memory, self._best):
            atomic_io.sweep(folder)

    def _remove_others(self) -> None:
        """Remove checkpoints of steps that are not in `_history`, and all but the newest checkpoint of each step."""
        newest = {path for step, path in folders(self.folder).items() if step in self._history}
        for path in sorted(self.folder.glob("step-*")):
            if _FOLDER.fullmatch(path.name) and path not in newest:
                atomic_io.set_aside(path)

    def _tidy(self) -> None:
        for step in sorted(self._history)[: -self.keep]:
            del self._history[step]
        self._remove_others()
        self._sweep()
        needed = {record.file.name for description in self._history.values() for record in description.segments}
        for path in sorted(self._segment_files().values()):
            if path.name not in needed:
                atomic_io.remove(path)

    def _segment_files(self) -> dict[int, Path]:
        matches = [(manifest.SEGMENT_FILE.fullmatch(path.name), path) for path in self._memory.glob("segment-*")]
        return {int(match[1]): path for match, path in matches if match}

    def _best_steps(self) -> list[int]:
        return sorted(int(path.name) for path in self._best.glob("[0-9]*") if path.name.isdecimal())


def _newest_first(numbers: Callable[[], list[int]]) -> Iterator[int]:
    """Yield each number once, the highest first. List them anew each time: a running process may remove some."""
    tried: set[int] = set()
    while untried := [number for number in numbers() if number not in tried]:
        tried.add(untried[-1])
        yield untried[-1]


def folders(folder: Path) -> dict[int, Path]:
    """Return the folder of each step's newest checkpoint, ascending."""
    matches = [(match, path) for path in folder.glob("step-*") if (match := _FOLDER.fullmatch(path.name))]
    by_age = sorted((int(match[1]), int(match[2] or 1), path) for match, path in matches)
    return {step: path for step, _, path in by_age}
