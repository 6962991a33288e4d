"""Write demonstrations to disk, all of them or none."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, cast

import numpy as np

from duetto.demonstrations.describing import read_metadata, write_description
from duetto.demonstrations.episodes import Demonstration, Demonstrations, Description, apart, check
from duetto.demonstrations.form import DATA, FORMAT, KEY, METADATA, SEALED, key, minari, stored
from duetto.demonstrations.reading import load, read
from duetto.demonstrations.sealing import check_own_file, write_seal
from duetto.environments import to_gymnasium
from duetto.errors import DuettoError, UsageError
from duetto.functional.trees import leaves
from duetto.networks.spaces import Dict, Space
from duetto.storage import disk
from duetto.storage.manifest import MANIFEST
from duetto.storage.unseen import publish, unseen

BUFFERED = 2**26  # bytes, and
MANY = 100  # episodes, after which they are written


def save(
    path: str | Path,
    description: Description,
    episodes: Iterable[Demonstration],
    seeds: Iterable[int | None] | None = None,
    overwrite: bool = False,
) -> Path:
    """Write a dataset of these episodes; `seeds` are what the environment was reset with, where that is known.

    Raises:
        UsageError: The folder exists, and is not to be overwritten; or an episode is not as it is described.
    """
    with writer(path, description, overwrite) as opened:
        numbered = iter(seeds) if seeds is not None else None
        for episode in episodes:
            opened.add(episode, next(numbered) if numbered else None)
    return Path(path)


def seal(path: str | Path) -> Demonstrations:
    """Seal a folder as it is now, after every episode of it was read and checked; an older seal is replaced.

    Raises:
        UsageError: It cannot be read, or has links to what lies elsewhere.
    """
    path = Path(path)
    minari()
    found = read(path)
    for entry in path.iterdir():
        if entry.is_symlink() or not entry.is_dir():
            check_own_file(entry)
    for number in range(len(found)):
        found.episodes[number]
    try:
        if found.format < SEALED:
            metadata = read_metadata(path)
            metadata[KEY]["format"] = FORMAT
            disk.publish_file(path / METADATA, json.dumps(metadata).encode())
        write_seal(path)
    except OSError as error:
        raise DuettoError(f"{path} cannot be sealed: {error}.") from error
    return load(path)


@contextmanager
def writer(path: str | Path, description: Description, overwrite: bool = False) -> Iterator[Writer]:
    """Open a `Writer` that takes episodes one by one. The folder appears when all are written, or not at all.

    Raises:
        UsageError: The folder exists, and is not to be overwritten; or nothing was written.
    """
    path = Path(path)
    minari()
    check_free(path, overwrite)
    with unseen(path) as folder:
        try:
            opened = Writer(folder, path.name, description)
            yield opened
            opened.finish()
            _publish(folder, path, overwrite)
        except OSError as error:
            raise DuettoError(f"The demonstrations {path} cannot be written: {error}.") from error


def check_free(path: Path, overwrite: bool) -> None:
    """Raise UsageError where something is at `path`, unless it is a dataset that may be overwritten."""
    if not path.exists():
        return
    if not overwrite:
        raise UsageError(f"{path} exists already. Choose another --output, or replace it with --overwrite.")
    there = {child.name for child in path.iterdir()} if path.is_dir() else {""}
    if there and not (METADATA in there and there <= {METADATA, DATA, MANIFEST}):
        raise UsageError(f"{path} is no dataset, so it is not overwritten. Choose another --output.")


class Writer:
    """A dataset that takes episodes, and that nobody sees yet."""

    def __init__(self, folder: Path, name: str, description: Description) -> None:
        self._description = description
        storage = minari().dataset.minari_storage.MinariStorage
        self._storage = storage.new(
            folder,
            to_gymnasium(stored(description.observation_space)),
            to_gymnasium(stored(description.action_space, is_action=True)),
            jpeg_encoding=False,  # Minari's default loses what is in small details of an image
        )
        self._folder, self._name = folder, name
        self._buffer: list[Any] = []
        self._bytes = 0
        self._about: dict[str, list[Any]] = {
            name: [] for name in ("returns", "lengths", "terminated", "seeds", "parts")
        }

    def add(self, episode: Demonstration, seed: int | None = None, part: int = 0) -> None:
        """Append a copy of an episode; UsageError where it is not as it is described."""
        try:
            check(episode, self._description)
        except UsageError as error:
            raise UsageError(f"Episode {len(self._about['returns'])} does not fit: {error}") from error
        values = (float(episode.reward.sum(dtype=np.float64)), episode.length, bool(episode.terminated), seed, part)
        for entries, value in zip(self._about.values(), values, strict=True):
            entries.append(value)
        self._buffer.append(_buffer(episode, seed, self._description.action_space))
        self._bytes += sum(array.nbytes for array in leaves(episode.obs))
        if self._bytes > BUFFERED or len(self._buffer) >= MANY:
            self._flush()

    def finish(self) -> None:
        """Write what is left, and the description; UsageError if there is no episode."""
        if not self._about["returns"]:
            raise UsageError("No episode was recorded, so there is nothing to write.")
        self._flush()
        about = self._description
        self._storage.update_metadata(
            {
                "dataset_id": re.sub(r"[^-\w]+", "-", self._name).strip("-") + "-v0",
                "minari_version": minari().__version__,
                "algorithm_name": about.expert,
                "description": f"Demonstrations of {about.environment}, recorded by Duetto.",
                KEY: {"format": FORMAT} | write_description(about) | self._about,
            }
        )
        write_seal(self._folder)

    def _flush(self) -> None:
        self._storage.update_episodes(self._buffer)
        self._buffer, self._bytes = [], 0


def _buffer(episode: Demonstration, seed: int | None, space: Space) -> Any:
    ends = np.zeros((2, episode.length), bool)
    ends[:, -1] = episode.terminated, episode.truncated
    seen: Any = episode.obs
    obs = {key(name): np.array(part) for name, part in seen.items()} if isinstance(seen, dict) else np.array(seen)
    action: Any = np.array(episode.action)
    if isinstance(space, Dict):
        action = {key(name): part for name, part in apart(action, space)}
    return minari().data_collector.EpisodeBuffer(
        seed=seed,
        observations=obs,
        actions=action,
        rewards=cast("list[float]", np.array(episode.reward)),
        terminations=cast("list[bool]", ends[0]),
        truncations=cast("list[bool]", ends[1]),
    )


def _publish(folder: Path, path: Path, overwrite: bool) -> None:
    """Give the folder its name in one step; what was there before is gone only then.

    Raises UsageError where something came there meanwhile that is not to be overwritten; the new folder gets another
    name then.
    """
    for file in folder.iterdir():
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
    if not path.exists():
        publish(folder, path)
        return
    if not overwrite:
        other = next(one for n in count(2) if not (one := path.with_name(f"{path.name}-{n}")).exists())
        publish(folder, other)
        raise UsageError(f"{path} was made meanwhile, and is as it was. What would have become it is in {other}.")
    old = Path(tempfile.mkdtemp(prefix=f".{path.name}.old-", dir=path.absolute().parent))
    path.rename(old / path.name)
    try:
        publish(folder, path)
    except BaseException:
        if not path.exists():
            (old / path.name).rename(path)
            old.rmdir()
        raise
    shutil.rmtree(old, ignore_errors=True)
