"""Take over episodes that were recorded elsewhere: from Minari datasets, and from npz files.

An npz file holds one episode of T steps, its actions and rewards as the environment takes and gives them:

    observations            (T + 1, ...), the final one last; for Dict spaces one array for each part,
                            "observations/<part>", nested parts "observations/<part>/<part>"
    actions                 (T, ...), those of Box spaces within the environment's bounds
    rewards                 (T,)
    terminations            (T,) true at the end at most
    truncations             (T,)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from duetto.demonstrations import form
from duetto.demonstrations.describing import minari_spaces, read_metadata
from duetto.demonstrations.episodes import Demonstration
from duetto.demonstrations.fitting import spell
from duetto.demonstrations.hdf5 import EpisodeFile
from duetto.demonstrations.npz import read_npz
from duetto.demonstrations.sealing import check_own_file
from duetto.environments import (
    ActionMap,
    Tree,
    complete_options,
    flatten_observation,
    from_gymnasium,
    learned_reward,
    to_gymnasium,
    trees,
)
from duetto.environments.spaces import Layout
from duetto.errors import UsageError
from duetto.networks.spaces import Dict, Space

NAMES = ("actions", "rewards", "terminations", "truncations")
ROUNDING = 1e-6  # by which actions may be outside of their bounds


class Source(NamedTuple):
    """The episodes that are to be taken over."""

    expert: str  # as the source says it
    total: int  # episodes
    episodes: Iterator[tuple[Demonstration, int | None]]  # with their seeds, where these are known


def open_source(source: str, observation_space: Space, action_space: Space) -> Source:
    """Open episodes of a folder (Minari's, or of npz files), a single npz file, or a dataset in Minari's local folder.

    Raises:
        UsageError: There is nothing of this kind, or its spaces are not these; damaged files show when they are read.
    """
    if isinstance(action_space, Dict):
        raise UsageError(
            f"{source} cannot be taken over: here actions are {action_space}, and no algorithm learns from "
            "demonstrations of several at once."
        )
    path = Path(source)
    if path.suffix == ".npz" and path.is_file():
        return _open_npz([path], observation_space, action_space)
    if path.is_dir() and (found := sorted(path.glob("*.npz"))):
        for one in found:
            check_own_file(one)
        return _open_npz(found, observation_space, action_space)
    for folder in (path, path / "data", form.minari().storage.local.get_dataset_path(source) / "data"):
        if (folder / form.METADATA).is_file():
            return _open_minari(folder, observation_space, action_space)
    raise UsageError(f"{source} is no Minari dataset, and no folder with npz files. Give the folder of one of them.")


def as_learned(source: Source, environment: str, options: Mapping[str, Any]) -> Source:
    """Return the source with the rewards that a run with these environment options learns from, such as clipped ones.

    Raises:
        UsageError: Episodes would end with each life; where one is lost, recordings do not say.
    """
    whole = complete_options(environment, options)
    if whole.get("episodic_life"):
        raise UsageError(
            f"{environment} has episodic_life here, and recordings do not say where a life is lost. Import them with "
            "episodic_life=false, and train with that, too."
        )
    clip, log = (bool(whole.get(name)) for name in ("clip_rewards", "log_rewards"))
    if not (clip or log):
        return source
    return source._replace(
        episodes=(
            (episode._replace(reward=learned_reward(episode.reward, clip, log)), seed)
            for episode, seed in source.episodes
        )
    )


# ---------------------------------------------------------------------------------------------------- Minari
def _open_minari(folder: Path, observation_space: Space, action_space: Space) -> Source:
    try:
        metadata = read_metadata(folder)
        if form.KEY in metadata:
            raise UsageError(
                f"{folder} holds demonstrations of Duetto already. Use it as it is: --demonstrations {folder}."
            )
        found = minari_spaces(metadata)
        _check_spaces(folder, found, observation_space, action_space)
        file = EpisodeFile(folder, jpeg=bool(metadata.get("jpeg_encoding", True)))
        count = file.count()
    except form.DAMAGE as error:
        raise _unreadable(folder, error) from error
    expert = f"{metadata.get('algorithm_name') or 'unknown'} in {metadata.get('dataset_id', folder)}"
    return Source(expert, count, _read_minari(folder, file, count, *found))


def _check_spaces(folder: Path, ours: tuple[Any, Any], observation_space: Space, action_space: Space) -> None:
    wanted = spell(observation_space, bounds=False), spell(action_space)
    found = tuple(_spell(space, bounds) for space, bounds in zip(ours, (False, True), strict=True))
    if wanted != found:
        raise UsageError(
            f"{folder} is of another environment:\n"
            f"  dataset      observations {found[0]}\n               actions      {found[1]}\n"
            f"  environment  observations {wanted[0]}\n               actions      {wanted[1]}\n"
            "Give the --environment that it was recorded in, with the same --environment-options."
        )


def _spell(space: Any, bounds: bool) -> str:
    try:
        return spell(from_gymnasium(space), bounds=bounds)
    except UsageError:
        return str(space)  # texts, for example


def _read_minari(
    folder: Path, file: EpisodeFile, count: int, observation_space: Any, action_space: Any
) -> Iterator[tuple[Demonstration, int | None]]:
    layouts, actions = (Layout(observation_space), Layout(action_space)), ActionMap(action_space)
    for number in range(count):
        try:
            found = file.read(number, *layouts)
            episode = _episode(layouts[0].batch(found["observations"]), found, actions)
        except (*form.DAMAGE, UsageError) as error:
            raise _unreadable(folder, error, f"episode {number}: ") from error
        yield episode, found["seed"]


# ---------------------------------------------------------------------------------------------------- npz
def _open_npz(paths: list[Path], observation_space: Space, action_space: Space) -> Source:
    read = ((_read_npz(path, observation_space, action_space), None) for path in paths)
    return Source(f"unknown, in {len(paths)} npz files", len(paths), read)


def _read_npz(path: Path, observation_space: Space, action_space: Space) -> Demonstration:
    try:
        parts = [name for name, _ in observation_space.parts] if isinstance(observation_space, Dict) else []
        wanted = [*NAMES, *([f"observations/{part}" for part in parts] or ["observations"])]
        found = read_npz(path, wanted)
        obs: Any = {part: found[f"observations/{part}"] for part in parts} if parts else found["observations"]
        flat = flatten_observation(to_gymnasium(observation_space), obs)
        _check_kept(obs, flat)
        return _episode(flat, found, ActionMap(to_gymnasium(action_space)))
    except (*form.DAMAGE, UsageError) as error:
        raise _unreadable(path, error) from error


def _check_kept(given: Tree, flat: Tree) -> None:
    """Raise UsageError where fractions, or numbers beyond a byte, would become bytes."""
    for (name, before), (_, after) in zip(trees.parts(given), trees.parts(flat), strict=True):
        if after.dtype == np.uint8 and not np.array_equal(before, after):
            raise UsageError(f"Its observations {name} are no whole numbers from 0 to 255, as the space wants them.")


# ---------------------------------------------------------------------------------------------------- both
def _episode(obs: Tree, found: dict[str, Any], actions: ActionMap) -> Demonstration:
    given = np.asarray(found["actions"])
    rewards, terminations, truncations = (np.asarray(found[name]) for name in NAMES[1:])
    steps = len(given)
    if any(array.shape != (steps,) for array in (rewards, terminations, truncations)):
        raise UsageError(f"It has {steps} actions; give as many rewards, terminations and truncations, (T,).")
    if steps == 0 or np.any(terminations[:-1]) or np.any(truncations[:-1]):
        raise UsageError("It is over before its last step, or has none. Give one file, or one episode, for each.")
    if not actions.continuous and given.dtype.kind == "f" and np.any(given != np.floor(given)):
        raise UsageError(f"Its actions are no whole numbers, as {actions.space} wants them.")
    action = actions.from_environment(given)
    if actions.continuous:
        if np.any(np.abs(action) > 1 + ROUNDING):
            raise UsageError(
                f"It has actions outside of the bounds of {actions.space}. Clip them as the environment does."
            )
        action = np.clip(action, -1, 1)
    terminated = bool(terminations[-1])
    # A recording that was stopped has no end of its own; for the learner it is a time limit.
    return Demonstration(obs, action, rewards.astype(np.float32), terminated, bool(truncations[-1]) or not terminated)


def _unreadable(path: Path, error: Exception, where: str = "") -> UsageError:
    return UsageError(f"{path} cannot be imported ({where}{error})")
