"""The checkpoints of a run: exact, safe against kill -9, power cuts and full disks, and as cheap as what is new.

    checkpoints/
        step-000000012000/       state.json, state.safetensors, manifest.json
        memory/                  segment-000000000001.safetensors, ...: experience, each row written once
        best/000000000003/       state.*, info.json, manifest.json: the parameters of the best evaluation
        step-000000008000.kept   empty: the checkpoint of that step stays, also when it is none of the newest

Nothing is ever changed in place. What is new is written beside the old under a temporary name, synced, and renamed in
one step; only then is the old removed. So at every moment the newest folder is whole, and readers need no lock.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from duetto.errors import CheckpointError, UsageError, to_resume
from duetto.storage import disk, segments, snapshot, within
from duetto.storage.manifest import DamagedError, Manifest, MemoryDamagedError, MemoryRecord
from duetto.storage.segments import Segment
from duetto.storage.states import State, decode_tree, encode_tree


@dataclass(frozen=True)
class Loaded:
    """A checkpoint that was read and verified."""

    step: int
    state: State
    segments: Iterator[Segment]  # oldest first; read one at a time, so consume it before the next save
    path: Path
    problems: list[str]  # a sentence for each newer checkpoint that is damaged


@dataclass(frozen=True)
class Best:
    """The parameters of the best evaluation."""

    step: int
    state: State
    info: State
    path: Path


class CheckpointStore:
    """Saves and loads the checkpoints in `<run>/checkpoints/`.

    One process saves at a time (see `FolderLock`); any number may load. A store continues what it loaded last, or
    starts in a folder without checkpoints. Checkpoints that are not part of what it continues (damaged ones, newer
    ones than the one that was loaded) are removed by its next save.
    """

    def __init__(self, folder: Path, keep: int = 2, num_envs: int = 1) -> None:
        if keep < 1:
            raise UsageError(f"keep is {keep}, but at least one checkpoint must be kept. Give 1 or more.")
        self.folder = folder
        self.keep = keep
        self._num_envs = num_envs
        self._memory = folder / "memory"
        self._best = folder / "best"
        self._history: dict[int, Manifest] = {}  # by step, ascending: what this store continues
        self._memory_begins_anew = False  # the last one was loaded without its memory
        within.check_folders((folder, self._memory, self._best))

    @property
    def covered(self) -> np.ndarray:
        """Rows per environment, (num_envs,) int64, in the last checkpoint saved or loaded: new rows start there."""
        memory = self._last_memory()
        return np.array(memory.written, np.int64) if memory else np.zeros(self._num_envs, np.int64)

    def steps(self) -> list[int]:
        """Return the steps of all checkpoints, damaged ones too, ascending."""
        return sorted({step for step, _ in snapshot.listing(self.folder)})

    def path_of(self, step: int) -> Path:
        """Return the folder that the checkpoint of a step has, or would have."""
        return self.folder / snapshot.name(step)

    def save(
        self,
        step: int,
        state: State,
        segment: Segment | None = None,
        memory_window: tuple[np.ndarray, int] | None = None,
    ) -> Path:
        """Write a checkpoint and return its folder. It is durable when this returns.

        Args:
            step: not less than that of the last checkpoint; the same step replaces it.
            state: see `storage`.
            segment: the experience that is new since `covered`: "start" and "count", (num_envs,) int64, say that it
                holds the rows [start, start + count) of each environment; its other arrays are the caller's.
            memory_window: (written, rows): each environment's memory holds the newest `rows` of its `written` rows,
                (num_envs,) int64. None if there is no memory.

        Raises CheckpointError if the disk refuses. Then all earlier checkpoints are as they were, `covered` too, and
        the store can go on.
        """
        self._check_continues(step)
        files = encode_tree("state", state)
        memory, new_segment = self._extend_memory(segment, memory_window)
        manifest = Manifest(step, snapshot.describe(files), memory)
        target = self.path_of(step)
        with self._writing(f"The checkpoint at step {step}", files | new_segment):
            self._prepare(self._memory if memory else self.folder)
            for name, data in new_segment.items():
                disk.publish_file(self._memory / name, data)
            temporary = snapshot.write(target, files, manifest)
            self._make_way(step)
            disk.move(temporary, target)
            self._history[step], self._memory_begins_anew = manifest, False
            disk.sync_folder(self.folder)
        with suppress(OSError):  # nothing is lost, and the next save tries again
            self._tidy()
        return target

    def save_best(self, step: int, state: State, info: State) -> Path:
        """Write the best parameters yet and return their folder. `info` says why they are the best.

        Those that were the best at the last checkpoint stay until `settle_best`, for `drop_best` to go back to.

        Raises CheckpointError if the disk refuses. Then the previous best is as it was.
        """
        files = encode_tree("state", state) | encode_tree("info", info)
        target = self._best / f"{max(self._best_numbers(), default=0) + 1:012}"
        manifest = Manifest(step, snapshot.describe(files), None)
        with self._writing(f"The best parameters at step {step}", files):
            self._prepare(self._best)
            disk.move(snapshot.write(target, files, manifest), target)
            disk.sync_folder(self._best)
        self._remove_best(self._best_numbers()[1:-1])
        return target

    def settle_best(self, best: Path | None = None) -> None:
        """Remove all best parameters but these, by default the newest: those that a checkpoint is about."""
        numbers = self._best_numbers()
        kept = int(best.name) if best else max(numbers, default=0)
        self._remove_best([number for number in numbers if number != kept])

    def drop_best(self) -> None:
        """Go back to the best parameters before the newest ones."""
        self._remove_best(self._best_numbers()[-1:])

    def _remove_best(self, numbers: Sequence[int]) -> None:
        with suppress(OSError):  # as in `save`
            for number in numbers:
                disk.set_aside(self._best / f"{number:012}")
            disk.sweep(self._best)

    def keep_for_good(self, step: int) -> None:
        """Mark the checkpoint of a step so that it is never removed. Raises CheckpointError if the disk refuses."""
        mark = self._mark_of(step)
        if mark.exists():
            return
        with self._writing(f"The mark that keeps the checkpoint at step {step}", {mark.name: b""}):
            disk.publish_file(mark, b"")

    def load_latest(self, memory: bool = True) -> Loaded:
        """Load the newest undamaged checkpoint and continue from it. Raises CheckpointError if there is none.

        Without `memory` no experience is read, damaged or not, and the next save begins with an empty memory.
        """
        problems: list[str] = []
        without_memory = ""
        tried: set[int] = set()
        # Look again each time: the run may be alive, and remove a checkpoint while it is read here.
        while untried := [step for step in self.steps() if step not in tried]:
            step = untried[-1]
            tried.add(step)
            try:
                return self._load(step, problems, memory)
            except DamagedError as error:
                if snapshot.find(self.folder, step).exists():
                    problems.append(str(error))
                    if isinstance(error, MemoryDamagedError):
                        without_memory = without_memory or _way_out(step, self.folder)
        if problems:
            raise CheckpointError(
                f"No checkpoint in {self.folder} can be used:\n" + "\n".join(problems) + without_memory
            )
        raise CheckpointError(f"There is no checkpoint in {self.folder}. Is it the folder of a Duetto run?")

    def load(self, step: int, memory: bool = True) -> Loaded:
        """Load one checkpoint and continue from it. Raises CheckpointError if it is damaged or not there.

        `memory` as in `load_latest`.
        """
        if step not in (steps := self.steps()):
            known = "It has those at " + ", ".join(map(str, steps)) if steps else "It has none"
            raise CheckpointError(f"{self.folder} has no checkpoint at step {step}. {known}.")
        return self._load(step, [], memory)

    def load_best(self) -> Best:
        """Load the parameters of the best evaluation. Raises CheckpointError if they are damaged or not there."""
        damage = ""
        tried: set[int] = set()
        while untried := [number for number in self._best_numbers() if number not in tried]:
            tried.add(untried[-1])
            path = self._best / f"{untried[-1]:012}"
            try:
                manifest, files = snapshot.read(path)
                return Best(manifest.step, decode_tree("state", files), decode_tree("info", files), path)
            except DamagedError as error:
                damage = damage or str(error)
        raise CheckpointError(f"{damage or f'{self.folder} holds no best parameters yet.'} Use the latest checkpoint.")

    def _load(self, step: int, problems: list[str], memory: bool) -> Loaded:
        path = snapshot.find(self.folder, step)
        manifest, files = snapshot.read(path)
        if manifest.step != step:
            raise DamagedError(f"{path} is damaged: it holds the checkpoint at step {manifest.step}.")
        state = decode_tree("state", files)
        needed = segments.needed(manifest) if memory else []
        for record in needed:  # now, because halfway through the experience it is too late for an older checkpoint
            try:
                record.file.read(self._memory)
            except DamagedError as error:
                raise MemoryDamagedError(str(error)) from error
        self._history = snapshot.readable_before(self.folder, step) | {step: manifest}
        self._memory_begins_anew = not memory
        return Loaded(step, state, (segments.read(self._memory, record) for record in needed), path, problems)

    def _check_continues(self, step: int) -> None:
        if not self._history and (steps := self.steps()):
            raise CheckpointError(
                f"{self.folder} holds checkpoints at steps {steps} of an earlier run. Go on with it: "
                f"{to_resume(self.folder.parent)}, or choose another folder."
            )
        if self._history and step < (last := max(self._history)):
            raise ValueError(f"step {step} is before {last}, the step of the last checkpoint")

    def _extend_memory(
        self, segment: Segment | None, window: tuple[np.ndarray, int] | None
    ) -> tuple[MemoryRecord | None, dict[str, bytes]]:
        if window is None:
            if segment is not None:
                raise ValueError("a segment needs a memory_window")
            return None, {}
        name = segments.next_name(segments.present(self._memory) | segments.listed(self._history))
        last = self._last_memory()
        return segments.extend(last.segments if last else [], self.covered, segment, window, name)

    def _last_memory(self) -> MemoryRecord | None:
        if not self._history or self._memory_begins_anew:
            return None
        return self._history[max(self._history)].memory

    @contextmanager
    def _writing(self, what: str, files: Mapping[str, bytes]) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._undo(files)
            raise snapshot.refusal(what, self.folder, sum(map(len, files.values())), error) from error

    def _undo(self, files: Mapping[str, bytes]) -> None:
        for name in segments.present(self._memory) & (files.keys() - segments.listed(self._history)):
            with suppress(OSError):
                disk.remove(self._memory / name)
        with suppress(OSError):
            self._sweep()

    def _prepare(self, folder: Path) -> None:
        disk.make_folder(self.folder)
        disk.make_folder(folder)
        self._sweep()

    def _sweep(self) -> None:
        for step, path in snapshot.listing(self.folder):
            if path != (target := self.folder / snapshot.name(step)):  # it makes way; did the new one come?
                disk.set_aside(path) if target.exists() else disk.move(path, target)
        for folder in (self.folder, self._memory, self._best):
            disk.sweep(folder)

    def _make_way(self, step: int) -> None:
        """Remove checkpoints that the store does not continue, and free the name of the new one."""
        self._abandon_others()
        if (path := self.folder / snapshot.name(step)).exists():
            disk.move(path, snapshot.replaced(path))

    def _abandon_others(self) -> None:
        for step, path in snapshot.listing(self.folder):
            if step not in self._history:
                disk.set_aside(path)

    def _tidy(self) -> None:
        for step in sorted(self._history)[: -self.keep]:
            if not self._mark_of(step).exists():
                del self._history[step]
        self._abandon_others()
        self._sweep()
        for name in sorted(segments.present(self._memory) - segments.listed(self._history)):
            disk.remove(self._memory / name)

    def _mark_of(self, step: int) -> Path:
        """The path of the empty file that keeps `_tidy` from removing the checkpoint of this step."""
        return self.folder / f"{snapshot.name(step)}.kept"

    def _best_numbers(self) -> list[int]:
        return sorted(int(path.name) for path in self._best.glob("[0-9]*") if path.name.isdecimal())


def _way_out(step: int, folder: Path) -> str:
    return (
        f"\nBut for its experience the checkpoint at step {step} is whole. To go on from it with an empty memory: "
        f"{to_resume(folder.parent)} --without-memory"
    )
