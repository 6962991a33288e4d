"""Demonstrations from disk, each when it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np

from duetto.demonstrations.episodes import Demonstration, Demonstrations, Description, check
from duetto.demonstrations.form import DAMAGE, FORMAT, KEY, key, minari
from duetto.errors import UsageError
from duetto.networks import spaces
from duetto.networks.spaces import Dict, Space


def load(path: str | Path) -> Demonstrations:
    """The demonstrations in a folder; each is read when it is asked for. Loading runs no code that the folder brings.

    Raises:
        UsageError: The folder holds no dataset, one that does not describe itself, or a damaged one.
    """
    path = Path(path)
    minari_storage = minari().dataset.minari_storage.MinariStorage
    if not (path / "metadata.json").is_file():
        seen_from = "" if path.is_absolute() else f", seen from {Path.cwd()}"
        raise UsageError(f"{path} holds no demonstrations{seen_from}. Make some: duetto demos record --help.")
    try:
        storage = minari_storage.read(path)
        about = storage.metadata.get(KEY)
        if about is None:
            raise UsageError(
                f"{path} is a Minari dataset that does not say what it is of. Take it over: "
                f"duetto demos import {path} --environment ID --output FOLDER."
            )
        return _described(path, storage, about)
    except UsageError:
        raise
    except DAMAGE as error:
        raise _damaged(path, error) from error


def _described(path: Path, storage: Any, about: dict[str, Any]) -> Demonstrations:
    if about["format"] != FORMAT:
        raise UsageError(f"{path} has format {about['format']}, this Duetto reads {FORMAT}. Update Duetto.")
    observation, action = (spaces.from_json(about[f"{kind}_space"]) for kind in ("observation", "action"))
    description = Description(
        about["environment"], about["options"], about["expert"], observation, action, about["versions"]
    )
    lengths = np.array(about["lengths"], np.int64)
    found = next(iter(storage.get_episode_metadata([len(lengths) - 1])))  # opens the file, so that damage shows now
    if storage.total_episodes != len(lengths) or storage.total_steps != lengths.sum():
        raise ValueError(f"it has {storage.total_episodes} episodes, and {len(lengths)} are described")
    if found["total_steps"] != lengths[-1]:
        raise ValueError("its last episode has another length than is described")
    return Demonstrations(
        str(path),
        description,
        _Episodes(path, storage, description, lengths),
        np.array(about["returns"], np.float64),
        lengths,
        np.array(about["terminated"], bool),
        about["seeds"],
        about["parts"],
    )


class _Episodes(Sequence[Demonstration]):
    """Reads, and checks, an episode when it is asked for."""

    def __init__(self, path: Path, storage: Any, description: Description, lengths: np.ndarray) -> None:
        self._path, self._storage, self._description, self._lengths = path, storage, description, lengths

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
            episode = _read(next(iter(self._storage.get_episodes([number]))), self._description.observation_space)
            check(episode, self._description)
            if episode.length != self._lengths[number]:
                raise ValueError(f"it has {episode.length} steps instead of {self._lengths[number]}")
        except (*DAMAGE, UsageError) as error:
            raise _damaged(self._path, error, f"episode {number}: ") from error
        return episode


def _read(found: dict[str, Any], space: Space) -> Demonstration:
    obs = found["observations"]
    if isinstance(space, Dict):
        obs = {name: obs[key(name)] for name, _ in space.parts}
    terminated, truncated = (bool(found[name][-1]) for name in ("terminations", "truncations"))
    return Demonstration(obs, found["actions"], found["rewards"], terminated, truncated)


def _damaged(path: Path, error: Exception, where: str = "") -> UsageError:
    return UsageError(
        f"The demonstrations in {path} are damaged ({where}{error}). Record them anew, or copy them again."
    )
