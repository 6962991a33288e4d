"""Write and load demonstrations: a manifest with checksums, and a safetensors file for each episode.

    manifest.json                       metadata; per episode: seed, life (`part`), how it ended, file size and SHA-256
    segment-000000000001.safetensors    an episode of T steps
        obs; obs/KEY for a Dict space   (T + 1, ...), the final observation last
        action, reward                  (T, ...)

Nothing is pickled. The manifest is written last, so `load` refuses an interrupted recording. `load` also detects every
changed byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np

from duetto.buffers.episode_storage import unnamed
from duetto.demonstrations.types import Demonstration, Demonstrations, Metadata, arrays_of, check
from duetto.errors import DuettoError, UsageError
from duetto.functional import state_schema
from duetto.functional.state_schema import ANY, SEED, DictOf, ListOf, OptionalOf
from duetto.networks import spaces
from duetto.storage import atomic_io, manifest, signing
from duetto.storage.atomic_io import staging_folder
from duetto.storage.manifest import MANIFEST, SEGMENT_FILE, FileRecord, read_sealed, seal
from duetto.storage.tree_codec import decode_arrays, encode_arrays

FORMAT, VERSION = "duetto-demonstrations", 1

_SPACES = ("observation_space", "action_space")
_METADATA = {"environment": str, "options": DictOf(ANY), "expert": str, "versions": DictOf(str)}
_EPISODE = manifest.FILE | {"seed": OptionalOf(SEED), "part": int, "terminated": bool, "truncated": bool}


# ---------------------------------------------------------------------------------------------------- metadata
def encode_metadata(metadata: Metadata) -> dict[str, Any]:
    """Return the metadata as JSON values, with a signature if the environment's id or options name code."""
    signature = signing.sign(signing.references(metadata.environment, metadata.options))
    encoded = {name: spaces.to_json(getattr(metadata, name)) for name in _SPACES}
    return vars(metadata) | encoded | ({"signature": signature} if signature else {})


def decode_metadata(content: Mapping[str, Any]) -> Metadata:
    """Return the metadata from the JSON values that `encode_metadata` returned.

    Raises:
        ValueError, LookupError, TypeError, AttributeError, CheckpointError: The values are invalid.
    """
    state_schema.check(content, _METADATA, MANIFEST)
    fields: dict[str, Any] = {name: content[name] for name in _METADATA}
    fields |= {name: spaces.from_json(content[name]) for name in _SPACES}
    return Metadata(**fields)


# ------------------------------------------------------------------------------------------------ write
def save(
    path: str | Path,
    metadata: Metadata,
    episodes: Iterable[Demonstration],
    seeds: Iterable[int | None] | None = None,
    overwrite: bool = False,
) -> Path:
    """Write the episodes as a dataset into the new folder `path`; return `path`.

    `seeds` has the seed of each episode's reset, or None if it is unknown. By default all seeds are unknown.

    Raises:
        UsageError: The folder exists and may not be overwritten, or an episode does not fit the metadata.
    """
    with writer(path, metadata, overwrite) as opened:
        for episode, seed in zip(episodes, seeds if seeds is not None else repeat(None), strict=False):
            opened.add(episode, seed)
    return Path(path)


@contextmanager
def writer(path: str | Path, metadata: Metadata, overwrite: bool = False) -> Iterator[Writer]:
    """Yield a `Writer` for a temporary folder, which is renamed to `path` at the end, or removed after an error.

    Raises:
        UsageError: The folder exists and may not be overwritten, no episode was written, or actions are dicts.
    """
    if isinstance(space := metadata.action_space, spaces.Dict):
        raise UsageError(f"The action space is {space}, but no algorithm learns from demonstrations with Dict actions.")
    path = Path(path).absolute()
    check_free(path, overwrite)
    with staging_folder(path, overwrite) as folder:
        try:
            opened = Writer(folder, metadata)
            yield opened
            if not opened.episodes:
                raise UsageError("No episode was recorded, so there is nothing to write.")
            header = {"format": FORMAT, "version": VERSION} | encode_metadata(metadata)
            atomic_io.write_file(folder / MANIFEST, seal(header | {"episodes": opened.episodes}))
        except OSError as error:
            raise DuettoError(f"The demonstrations {path} cannot be written: {error}.") from error


def check_free(path: Path, overwrite: bool) -> None:
    """Raise UsageError if `path` exists, unless it is a dataset that may be overwritten."""
    if not path.exists():
        return
    if not overwrite:
        raise UsageError(f"{path} exists already. Choose another --output, or replace it with --overwrite.")
    there = {child.name for child in path.iterdir()} if path.is_dir() else {""}
    if there and not (MANIFEST in there and all(map(SEGMENT_FILE.fullmatch, there - {MANIFEST}))):
        raise UsageError(f"{path} is no dataset, so --overwrite does not replace it. Choose another --output.")


class Writer:
    """Writes episodes into a folder one by one.

    Attributes:
        episodes: The manifest's entries for the episodes written so far, as JSON values.
    """

    def __init__(self, folder: Path, metadata: Metadata) -> None:
        self._folder, self._metadata = folder, metadata
        self.episodes: list[dict[str, Any]] = []

    def add(self, episode: Demonstration, seed: int | None = None, part: int = 0) -> None:
        """Write an episode. For one life of a game, `part` is the life's number, from 0.

        Raises:
            UsageError: The episode does not fit the metadata.
        """
        try:
            check(episode, self._metadata)
        except UsageError as error:
            raise UsageError(f"Episode {len(self.episodes)} does not fit: {error}") from error
        data = encode_arrays(arrays_of(episode))
        file = FileRecord.of(f"segment-{len(self.episodes) + 1:012}.safetensors", data)
        atomic_io.write_file(self._folder / file.name, data)
        ends = {"terminated": bool(episode.terminated), "truncated": bool(episode.truncated)}
        self.episodes.append(vars(file) | ends | {"seed": None if seed is None else int(seed), "part": part})


# ------------------------------------------------------------------------------------------------ load
_DAMAGE = (DuettoError, ValueError, LookupError, TypeError, AttributeError, RecursionError)


def load(path: str | Path) -> Demonstrations:
    """Load the demonstrations in a folder, and verify all episodes. This runs no code from the folder.

    Each access to an episode reads it from disk.

    Raises:
        UsageError: The folder contains no demonstrations, or damaged ones.
    """
    path = Path(path)
    _check_present(path)
    try:
        content = read_sealed(path / MANIFEST)
        if (content["format"], content["version"]) != (FORMAT, VERSION):
            raise ValueError(f"{MANIFEST} has the format {content['format']!r}, version {content['version']}")
        metadata, records = decode_metadata(content), content["episodes"]
        state_schema.check(records, ListOf(_EPISODE), MANIFEST)
        parts = [record["part"] for record in records]
        if not parts or any(part not in (0, before + 1) for before, part in zip([-1, *parts], parts, strict=False)):
            raise ValueError("there are no episodes, or the parts of its games are out of order")
    except _DAMAGE as error:
        raise _damaged(path, error) from error
    episodes = _StoredEpisodes(path, metadata, records)
    returns, lengths = np.array([(each.reward.sum(dtype=np.float64), each.length) for each in episodes]).T
    terminated, seeds = np.array([record["terminated"] for record in records]), [record["seed"] for record in records]
    found = returns, lengths.astype(np.int64), terminated, seeds, parts
    return Demonstrations(str(path), metadata, episodes, *found, content.get("signature"))


def _check_present(path: Path) -> None:
    if (path / MANIFEST).exists() or (path / MANIFEST).is_symlink():  # `load` verifies it; run folders have no manifest
        return
    if any((folder / "metadata.json").is_file() for folder in (path, path / "data")):
        raise UsageError(
            f"{path} is a Minari dataset. Import it: duetto demos import {path} --environment ID --output FOLDER."
        )
    where = "" if path.is_absolute() else f" in {Path.cwd()}"
    raise UsageError(f"{path}{where} contains no demonstrations. To record some, run: duetto demos record --help.")


class _StoredEpisodes(Sequence[Demonstration]):
    """The episodes of a dataset, each read from disk and checked at every access."""

    def __init__(self, path: Path, metadata: Metadata, records: list[dict[str, Any]]) -> None:
        self._path, self._metadata, self._records = path, metadata, records

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        record = self._records[index]
        try:
            arrays = decode_arrays(FileRecord(record["name"], record["size"], record["sha256"]).read(self._path))
            ends = record["terminated"], record["truncated"]
            episode = Demonstration(unnamed("obs", arrays), arrays["action"], arrays["reward"], *ends)
            check(episode, self._metadata)
        except _DAMAGE as error:
            raise _damaged(self._path, error) from error
        return episode


def _damaged(path: Path, error: object) -> UsageError:
    cause = str(error).rstrip(".")
    return UsageError(f"The demonstrations in {path} are damaged ({cause}). Record or copy them again.")
