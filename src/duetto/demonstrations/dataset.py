"""Write and load demonstrations: a manifest with checksums, and segments of episodes as safetensors.

    manifest.json                       metadata; name, size and SHA-256 of each segment
    segment-000000000001.safetensors    K episodes of T steps, concatenated
        obs, or obs/PART of a Dict      (T + 1, ...) of each episode, the final observation last
        action, reward                  (T, ...) of each episode
        length, seed, part              (K,) int64; a seed of -1 is unknown
        terminated, truncated           (K,) bool

There is no pickle. The manifest is written last, and every change of a byte is detected.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate, repeat
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np

from duetto.demonstrations.types import Demonstration, Demonstrations, Metadata, check, check_actions
from duetto.errors import DuettoError, UsageError
from duetto.functional.pytree import tree_leaves, tree_map
from duetto.networks import spaces
from duetto.networks.spaces import Dict
from duetto.storage import atomic_io, signing
from duetto.storage.atomic_io import staging_folder
from duetto.storage.manifest import MANIFEST, FileRecord, file_record, read_sealed, seal, segment_name
from duetto.storage.tree_codec import decode_arrays, encode_arrays

FORMAT, VERSION = "duetto-demonstrations", 1
FILE = re.compile(r"manifest\.json|segment-\d{12}\.safetensors")
MOST_NESTED = 16  # levels of options
SEGMENT = 2**26  # bytes of observations, actions and rewards, after which a segment is written

_COLUMNS = {"length": np.int64, "seed": np.int64, "part": np.int64, "terminated": np.bool_, "truncated": np.bool_}


class EpisodeRecord(NamedTuple):
    """An episode, the seed that the environment was reset with, and its place among the lives of a game."""

    episode: Demonstration
    seed: int | None
    part: int


def encode_segment(entries: Sequence[EpisodeRecord]) -> bytes:
    """Return the content of a segment's file."""
    parts = [_arrays(entry.episode) for entry in entries]
    rows = [
        (episode.length, -1 if seed is None else seed, part, episode.terminated, episode.truncated)
        for episode, seed, part in entries
    ]
    columns = zip(_COLUMNS.items(), zip(*rows, strict=True), strict=True)
    arrays = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return encode_arrays(arrays | {name: np.array(column, dtype) for (name, dtype), column in columns})


def decode_segment(data: bytes, metadata: Metadata) -> list[EpisodeRecord]:
    """Read and check every episode of a segment. Raises ValueError, UsageError or CheckpointError."""
    arrays = decode_arrays(data)
    space = metadata.observation_space
    obs = [f"obs/{name}" for name, _ in space.parts] if isinstance(space, Dict) else ["obs"]
    if arrays.keys() != {*obs, "action", "reward", *_COLUMNS}:
        raise ValueError(f"a segment has the arrays {sorted(arrays)}")
    lengths = arrays["length"].tolist()
    if any(arrays[name].dtype != dtype or arrays[name].shape != (len(lengths),) for name, dtype in _COLUMNS.items()):
        raise ValueError("a segment has columns of other types or lengths")
    rows = dict.fromkeys(obs, sum(lengths) + len(lengths)) | dict.fromkeys(("action", "reward"), sum(lengths))
    if min(lengths, default=0) < 1 or any(arrays[name].shape[:1] != (count,) for name, count in rows.items()):
        raise ValueError(f"a segment has other rows than episodes of {lengths[:9]} steps")
    entries = list(_entries(arrays, lengths, isinstance(space, Dict)))
    for entry in entries:
        check(entry.episode, metadata)
    return entries


def _arrays(episode: Demonstration) -> dict[str, np.ndarray]:
    obs = episode.obs
    seen = {f"obs/{name}": part for name, part in obs.items()} if isinstance(obs, dict) else {"obs": obs}
    return seen | {"action": episode.action, "reward": episode.reward}


def _entries(arrays: Mapping[str, np.ndarray], lengths: list[int], is_dict: bool) -> Iterator[EpisodeRecord]:
    for number, end in enumerate(accumulate(lengths)):
        start = end - lengths[number]
        seen = {
            name: rows[start + number : end + number + 1] for name, rows in arrays.items() if name.startswith("obs")
        }
        seed, part, terminated, truncated = (arrays[name][number].item() for name in list(_COLUMNS)[1:])
        yield EpisodeRecord(
            Demonstration(
                {name.removeprefix("obs/"): rows for name, rows in seen.items()} if is_dict else seen["obs"],
                arrays["action"][start:end],
                arrays["reward"][start:end],
                terminated,
                truncated,
            ),
            None if seed < 0 else seed,
            part,
        )


# ---------------------------------------------------------------------------------------------------- manifest
def encode_manifest(metadata: Metadata, segments: Sequence[FileRecord]) -> dict[str, Any]:
    """Return the content of the manifest, as JSON values."""
    header = {"format": FORMAT, "version": VERSION}
    return header | encode_metadata(metadata) | {"segments": [vars(record) for record in segments]}


def encode_metadata(metadata: Metadata) -> dict[str, Any]:
    """Return the metadata as JSON values, signed if the environment's id or options name a module."""
    signature = signing.sign(signing.references(metadata.environment, metadata.options))
    return {
        "environment": metadata.environment,
        "options": metadata.options,
        **({"signature": signature} if signature else {}),
        "expert": metadata.expert,
        "observation_space": spaces.to_json(metadata.observation_space),
        "action_space": spaces.to_json(metadata.action_space),
        "versions": metadata.versions,
    }


def decode_metadata(content: Mapping[str, Any]) -> Metadata:
    """Undo `encode_metadata`. Raises ValueError, LookupError, TypeError, AttributeError or CheckpointError."""
    observation, action = (spaces.from_json(content[f"{kind}_space"]) for kind in ("observation", "action"))
    options, versions = content["options"], content["versions"]
    texts = [content["environment"], content["expert"], *versions, *versions.values()]
    if not all(isinstance(text, str) for text in texts) or not isinstance(options, dict):
        raise ValueError("environment, options, expert or versions have the wrong type")
    _check_depth(options)
    return Metadata(content["environment"], options, content["expert"], observation, action, versions)


def _check_depth(value: Any, left: int = MOST_NESTED) -> None:
    """Raise ValueError if dicts and lists are nested so deeply that printing them would end in a RecursionError."""
    if not left:
        raise ValueError("its options are nested too deeply")
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_depth(inner, left - 1)


# ------------------------------------------------------------------------------------------------ write
def save(
    path: str | Path,
    metadata: Metadata,
    episodes: Iterable[Demonstration],
    seeds: Iterable[int | None] | None = None,
    overwrite: bool = False,
) -> Path:
    """Write a dataset of these episodes; `seeds` are those of the environment's resets, if they are known.

    Raises:
        UsageError: The folder exists, and is not to be overwritten; or an episode does not fit the metadata.
    """
    with writer(path, metadata, overwrite) as opened:
        for episode, seed in zip(episodes, seeds if seeds is not None else repeat(None), strict=False):
            opened.add(episode, seed)
    return Path(path)


@contextmanager
def writer(path: str | Path, metadata: Metadata, overwrite: bool = False) -> Iterator[Writer]:
    """Open a `Writer` that takes episodes one by one. The folder appears when all are written, or not at all.

    Raises:
        UsageError: The folder exists, and is not to be overwritten; or nothing was written.
    """
    check_actions(metadata.action_space)
    path = Path(path).absolute()
    check_free(path, overwrite)
    with staging_folder(path, overwrite) as folder:
        try:
            opened = Writer(folder, metadata)
            yield opened
            opened.finish()
            if overwrite:
                check_free(path, overwrite)
        except OSError as error:
            raise DuettoError(f"The demonstrations {path} cannot be written: {error}.") from error


def check_free(path: Path, overwrite: bool) -> None:
    """Raise UsageError where something is at `path`, unless it is a dataset that may be overwritten."""
    if not path.exists():
        return
    if not overwrite:
        raise UsageError(f"{path} exists already. Choose another --output, or replace it with --overwrite.")
    there = {child.name for child in path.iterdir()} if path.is_dir() else {""}
    if there and not (MANIFEST in there and all(FILE.fullmatch(name) for name in there)):
        raise UsageError(f"{path} is no dataset, so it is not overwritten. Choose another --output.")


class Writer:
    """Takes episodes one by one, into a folder that has another name until all are written."""

    def __init__(self, folder: Path, metadata: Metadata) -> None:
        self._folder, self._metadata = folder, metadata
        self._records: list[FileRecord] = []
        self._entries: list[EpisodeRecord] = []
        self._count, self._bytes = 0, 0

    def add(self, episode: Demonstration, seed: int | None = None, part: int = 0) -> None:
        """Append a copy of an episode. UsageError if it does not fit the metadata."""
        try:
            check(episode, self._metadata)
        except UsageError as error:
            raise UsageError(f"Episode {self._count} does not fit: {error}") from error
        obs, action, reward = tree_map(np.array, episode.obs), np.array(episode.action), np.array(episode.reward)
        self._entries.append(EpisodeRecord(episode._replace(obs=obs, action=action, reward=reward), seed, part))
        self._count += 1
        self._bytes += sum(array.nbytes for array in (*tree_leaves(obs), action, reward))
        if self._bytes > SEGMENT:
            self._flush()

    def finish(self) -> None:
        """Write the remaining episodes and the manifest. UsageError if there is no episode."""
        if not self._count:
            raise UsageError("No episode was recorded, so there is nothing to write.")
        self._flush()
        atomic_io.write_file(self._folder / MANIFEST, seal(encode_manifest(self._metadata, self._records)))

    def _flush(self) -> None:
        if not self._entries:
            return
        data = encode_segment(self._entries)
        name = segment_name(record.name for record in self._records)
        atomic_io.write_file(self._folder / name, data)
        self._records.append(FileRecord.of(name, data))
        self._entries, self._bytes = [], 0


# ------------------------------------------------------------------------------------------------ load
_DAMAGE = (DuettoError, ValueError, LookupError, TypeError, AttributeError, RecursionError)


def load(path: str | Path) -> Demonstrations:
    """Load the demonstrations in a folder and verify all of them; no code from the folder is run.

    Episodes are read from disk, one segment at a time, when they are accessed.

    Raises:
        UsageError: The folder contains no demonstrations, or damaged ones.
    """
    path = Path(path)
    _check_present(path)
    try:
        content = read_sealed(path / MANIFEST)
        if (content["format"], content["version"]) != (FORMAT, VERSION):
            raise ValueError(f"{MANIFEST} has the format {content['format']!r}, version {content['version']}")
        metadata = decode_metadata(content)
        episodes = _StoredEpisodes(path, metadata, [file_record(record) for record in content["segments"]])
        rows = [
            (episode.reward.sum(dtype=np.float64), episode.length, episode.terminated, seed, part)
            for episode, seed, part in episodes.read_all()
        ]
        if not rows:
            raise ValueError("there are no episodes")
        returns, lengths, terminated, seeds, parts = (list(column) for column in zip(*rows, strict=True))
        if any(part not in (0, before + 1) for before, part in zip([-1, *parts], parts, strict=False)):
            raise ValueError("the parts of its games are out of order")
    except _DAMAGE as error:
        raise _damaged(path, error) from error
    columns = np.array(returns, np.float64), np.array(lengths, np.int64), np.array(terminated, bool)
    return Demonstrations(str(path), metadata, episodes, *columns, seeds, parts, content.get("signature"))


def is_stored(path: str | Path) -> bool:
    """Return whether a folder has a manifest of demonstrations, damaged or not; a run's folder has none."""
    manifest = Path(path) / MANIFEST
    return manifest.exists() or manifest.is_symlink()


def _check_present(path: Path) -> None:
    if is_stored(path):
        return
    if any((folder / "metadata.json").is_file() for folder in (path, path / "data")):
        raise UsageError(
            f"{path} is a Minari dataset. Import it: duetto demos import {path} --environment ID --output FOLDER."
        )
    seen_from = "" if path.is_absolute() else f", seen from {Path.cwd()}"
    raise UsageError(f"{path} holds no demonstrations{seen_from}. Make some: duetto demos record --help.")


class _StoredEpisodes(Sequence[Demonstration]):
    """Episodes on disk; the last segment that was read stays in memory."""

    def __init__(self, path: Path, metadata: Metadata, records: list[FileRecord]) -> None:
        self._path, self._metadata, self._records = path, metadata, records
        self._last: tuple[int, list[EpisodeRecord]] = (-1, [])
        self._places: list[tuple[int, int]] = []  # of each episode: its segment, and its index there

    def read_all(self) -> Iterator[EpisodeRecord]:
        """Yield every episode, and note its place."""
        for segment in range(len(self._records)):
            for index, record in enumerate(self._segment(segment)):
                self._places.append((segment, index))
                yield record

    def _segment(self, number: int) -> list[EpisodeRecord]:
        if self._last[0] != number:
            self._last = (-1, [])  # free the memory first
            self._last = (number, decode_segment(self._records[number].read(self._path), self._metadata))
        return self._last[1]

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> Demonstration: ...
    @overload
    def __getitem__(self, index: slice) -> list[Demonstration]: ...
    def __getitem__(self, index: int | slice) -> Demonstration | list[Demonstration]:
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        segment, place = self._places[index]
        try:
            return self._segment(segment)[place].episode
        except _DAMAGE as error:
            raise _damaged(self._path, error) from error


def _damaged(path: Path, error: object) -> UsageError:
    cause = str(error).rstrip(".")
    return UsageError(f"The demonstrations in {path} are damaged ({cause}). Record them anew, or copy them again.")
