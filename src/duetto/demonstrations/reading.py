"""Read demonstrations from disk, each when it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np

from duetto.demonstrations.describing import read_counted, read_description, read_metadata
from duetto.demonstrations.episodes import Demonstration, Demonstrations, Description, check, together
from duetto.demonstrations.form import DAMAGE, FORMAT, KEY, METADATA, SEALED, key, minari, stored
from duetto.demonstrations.hdf5 import EpisodeFile
from duetto.demonstrations.sealing import check_seal, is_sealed
from duetto.environments import to_gymnasium
from duetto.environments.spaces import Layout
from duetto.errors import UsageError
from duetto.networks.spaces import Dict, Space
from duetto.storage.manifest import MANIFEST

_UNSEALED = (
    "The demonstrations in {path} have no seal, so that damage in them goes unnoticed: an earlier Duetto made them. "
    "Seal them as they are now: duetto demos seal {path}"
)


def load(path: str | Path) -> Demonstrations:
    """Load the demonstrations in a folder; each is read when it is asked for. No code that the folder brings is run.

    Raises:
        UsageError: The folder holds no dataset, one that does not describe itself, or one that is damaged, has other
            contents than were sealed, or has links to what lies elsewhere.
    """
    path = Path(path)
    minari()
    if not (path / METADATA).is_file() and not is_sealed(path):
        seen_from = "" if path.is_absolute() else f", seen from {Path.cwd()}"
        raise UsageError(f"{path} holds no demonstrations{seen_from}. Make some: duetto demos record --help.")
    if is_sealed(path):
        try:
            check_seal(path)
        except (ValueError, OSError) as error:
            raise _wrong_seal(path, error) from error
    found = read(path)
    if not is_sealed(path):
        if found.format >= SEALED:
            raise _wrong_seal(path, f"{MANIFEST} is missing")
        found.notices.append(_UNSEALED.format(path=path))
    return found


def read(path: Path) -> Demonstrations:
    """Load demonstrations as `load` does, but without looking at the seal."""
    try:
        metadata = read_metadata(path)
        about = metadata.get(KEY)
        if about is None:
            raise UsageError(
                f"{path} is a Minari dataset that does not say what it is of. Take it over: "
                f"duetto demos import {path} --environment ID --output FOLDER."
            )
        return _described(path, metadata, about)
    except DAMAGE as error:
        raise _damaged(path, error) from error


def _described(path: Path, metadata: dict[str, Any], about: dict[str, Any]) -> Demonstrations:
    if about["format"] > FORMAT:
        raise UsageError(f"{path} has format {about['format']}, this Duetto reads {FORMAT}. Update Duetto.")
    description, file = read_description(about), EpisodeFile(path)
    counted = read_counted(about, description, file.size)
    described = len(counted.lengths), int(counted.lengths.sum())
    if (metadata.get("total_episodes"), metadata.get("total_steps")) != described or file.count() != described[0]:
        raise ValueError(f"it has {file.count()} episodes, and {described[0]} of {described[1]} steps are described")
    if file.steps(described[0] - 1) != counted.lengths[-1]:
        raise ValueError("its last episode has another length than is described")
    episodes = _Episodes(path, file, description, counted.lengths)
    return Demonstrations(str(path), description, episodes, *counted, about.get("signature"), about["format"])


class _Episodes(Sequence[Demonstration]):
    """Episodes on disk, each read and checked when it is asked for."""

    def __init__(self, path: Path, file: EpisodeFile, description: Description, lengths: np.ndarray) -> None:
        self._path, self._file, self._description, self._lengths = path, file, description, lengths
        self._layouts = [Layout(to_gymnasium(stored(description.observation_space)))]
        self._layouts.append(Layout(to_gymnasium(stored(description.action_space, is_action=True))))

    def __len__(self) -> int:
        return len(self._lengths)

    @overload
    def __getitem__(self, index: int) -> Demonstration: ...
    @overload
    def __getitem__(self, index: slice) -> list[Demonstration]: ...
    def __getitem__(self, index: int | slice) -> Demonstration | list[Demonstration]:
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        number = range(len(self))[index]
        try:
            episode = _read(self._file.read(number, *self._layouts), self._description)
            check(episode, self._description)
            if episode.length != self._lengths[number]:
                raise ValueError(f"it has {episode.length} steps instead of {self._lengths[number]}")
        except (*DAMAGE, UsageError) as error:
            raise _damaged(self._path, error, f"episode {number}: ") from error
        return episode


def _read(found: dict[str, Any], about: Description) -> Demonstration:
    obs, action = _named(found["observations"], about.observation_space), found["actions"]
    if isinstance(about.action_space, Dict):
        action = together(_named(action, about.action_space), about.action_space)
    terminated, truncated = (bool(found[name][-1]) for name in ("terminations", "truncations"))
    return Demonstration(obs, action, found["rewards"], terminated, truncated)


def _named(arrays: Any, space: Space) -> Any:
    return {name: arrays[key(name)] for name, _ in space.parts} if isinstance(space, Dict) else arrays


def _wrong_seal(path: Path, error: object) -> UsageError:
    return UsageError(
        f"The demonstrations in {path} are damaged ({error}). Record them anew, or copy them again; what you changed "
        f"yourself is sealed as it is now by: duetto demos seal {path}"
    )


def _damaged(path: Path, error: Exception, where: str = "") -> UsageError:
    return UsageError(
        f"The demonstrations in {path} are damaged ({where}{error}). Record them anew, or copy them again."
    )
