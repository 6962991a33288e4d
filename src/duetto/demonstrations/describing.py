"""How demonstrations describe themselves in Minari's `metadata.json`: written, and read without believing any of it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from duetto.demonstrations.episodes import Description, row
from duetto.demonstrations.form import METADATA, minari
from duetto.demonstrations.sealing import check_own_file
from duetto.errors import CheckpointError
from duetto.networks import spaces
from duetto.networks.spaces import Dict, Space
from duetto.storage import trust

MOST_NESTED = 16  # levels of options
MOST_BITS = 2**20  # of a MultiBinary space, whose description says no more than their number


class Counted(NamedTuple):
    """The facts about each of N episodes that are known before any is read."""

    returns: np.ndarray  # (N,) float64
    lengths: np.ndarray  # (N,) int64
    terminated: np.ndarray  # (N,) bool
    seeds: list[int | None]
    parts: list[int]


def read_metadata(folder: Path) -> dict[str, Any]:
    """Read Minari's metadata. ValueError, or another of `form.DAMAGE`, where Duetto cannot read it."""
    check_own_file(folder / METADATA)
    metadata = json.loads((folder / METADATA).read_bytes())
    if not isinstance(metadata, dict):
        raise ValueError(f"{METADATA} holds no names and values")
    if metadata.get("data_format") != "hdf5":
        raise ValueError(f"its data_format is {metadata.get('data_format')!r}, and Duetto reads 'hdf5'")
    return metadata


def minari_spaces(metadata: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return observation and action space as Gymnasium's. Nothing that the metadata names is imported or made.

    Minari itself makes the environment where a space is missing, whose specification is a stranger's code to import.
    """
    texts = [metadata.get(f"{kind}_space") for kind in ("observation", "action")]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{METADATA} has no observation_space or no action_space. Load and save it with Minari once")
    for text in texts:
        _check_minari_space(json.loads(str(text)))
    observation, action = (minari().serialization.deserialize_space(text) for text in texts)
    return observation, action


def _check_minari_space(space: Any) -> None:
    """Raise ValueError where a space would take more memory than its description, or is none."""
    match space["type"]:
        case "Dict":
            for part in space["subspaces"].values():
                _check_minari_space(part)
        case "Tuple":
            for part in space["subspaces"]:
                _check_minari_space(part)
        case "Box" | "MultiDiscrete":
            bounds = (space["low"], space["high"]) if space["type"] == "Box" else (space["nvec"], space["start"])
            if np.dtype(space["dtype"]).kind not in "biuf":
                raise ValueError(f"a space of {space['dtype']} holds no numbers")
            shapes = {np.shape(bound) for bound in bounds} | {tuple(space.get("shape", np.shape(bounds[0])))}
            if len(shapes) > 1:
                raise ValueError(f"the bounds of a {space['type']} have other shapes than the space: {shapes}")
        case "MultiBinary":
            if math.prod(np.atleast_1d(space["n"]).tolist()) > MOST_BITS:
                raise ValueError("a MultiBinary space is larger than any that is used")


# ---------------------------------------------------------------------------------------------------- our own
def write_description(about: Description) -> dict[str, Any]:
    """Return the description as JSON, without the numbers of each episode."""
    signature = trust.signature(about.environment, about.options)
    return {
        "environment": about.environment,
        "options": about.options,
        **({"signature": signature} if signature else {}),
        "expert": about.expert,
        "observation_space": spaces.to_json(about.observation_space),
        "action_space": spaces.to_json(about.action_space),
        "versions": about.versions,
    }


def read_description(about: Mapping[str, Any]) -> Description:
    """Read what `write_description` returned. ValueError, or another of `form.DAMAGE`, where it is not that."""
    try:
        observation, action = (spaces.from_json(about[f"{kind}_space"]) for kind in ("observation", "action"))
    except CheckpointError as error:  # its sentence speaks of checkpoints
        raise ValueError("one of its spaces is none of Duetto's") from error
    for space in (observation, action):
        _check_space(space)
    texts = [about["environment"], about["expert"], *about["versions"], *about["versions"].values()]
    if not all(isinstance(text, str) for text in texts) or not isinstance(about["options"], dict):
        raise ValueError("its environment, options, expert and versions are not what they should be")
    _check_depth(about["options"])
    return Description(about["environment"], about["options"], about["expert"], observation, action, about["versions"])


def _check_depth(value: Any, left: int = MOST_NESTED) -> None:
    """Raise ValueError where dicts and lists are nested so deeply that showing them would end in a RecursionError."""
    if not left:
        raise ValueError("its options are nested too deeply")
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_depth(inner, left - 1)


def _check_space(space: Space) -> None:
    """Raise ValueError unless all values in a space have their annotated types, which JSON cannot promise."""
    match space:
        case Dict():
            for name, part in space.parts:
                if isinstance(part, Dict):
                    raise ValueError(f"part {name} of a space has parts")
                _check_space(part)
            return
        case spaces.Box():
            bounds = [*space.low, *space.high]
            good = space.dtype in ("float32", "uint8") and _all(space.shape, _natural) and _all(bounds, _number)
            good = good and all(len(bound) in (1, space.size) for bound in (space.low, space.high))
        case spaces.Discrete():
            good = _natural(space.n) and _whole(space.start)
        case spaces.MultiDiscrete():
            good = _all(space.nvec, _natural) and _all(space.shape, _natural) and _all(space.start, _whole)
    if not good:
        raise ValueError(f"a {type(space).__name__} space has parts that no such space has")


def read_counted(about: Mapping[str, Any], description: Description, size: int) -> Counted:
    """Read the numbers of each episode; ValueError where they cannot be true, as for a data file of `size` bytes."""
    columns = [about[name] for name in Counted._fields]
    returns, lengths, terminated, seeds, parts = columns
    if not all(isinstance(column, list) for column in columns) or len({len(column) for column in columns}) > 1:
        raise ValueError("its episodes are not described, or not all of them")
    if not lengths or not _all(lengths, _natural) or not _all(returns, _number) or not _all(parts, _whole):
        raise ValueError("the lengths, returns or parts of its episodes are no numbers that these can be")
    if not _all(seeds, lambda seed: seed is None or _whole(seed)) or not _all(terminated, _truth):
        raise ValueError("the seeds or the ends of its episodes are not what they should be")
    if any(part not in (0, before + 1) for before, part in zip([-1, *parts], parts, strict=False)):
        raise ValueError("the parts of its games are not in their order")
    # Data is not compressed. Whoever makes room for the episodes before reading them makes no more than there is.
    step = _row_bytes(description.observation_space) + _row_bytes(description.action_space, is_action=True) + 4 + 1 + 1
    if sum(lengths) * step > size:
        raise ValueError(f"{sum(lengths):,} steps are described, more than its data can hold")
    return Counted(np.array(returns, np.float64), np.array(lengths), np.array(terminated, bool), seeds, parts)


def _row_bytes(space: Space, is_action: bool = False) -> int:
    if isinstance(space, Dict):
        return sum(_row_bytes(part, is_action) for _, part in space.parts)
    shape, dtype = row(space, is_action=is_action)
    return math.prod(shape) * dtype.itemsize


def _all(values: Any, is_right: Callable[[Any], bool]) -> bool:
    return all(is_right(value) for value in values)


def _whole(value: Any) -> bool:
    return type(value) is int


def _natural(value: Any) -> bool:
    return type(value) is int and value > 0


def _number(value: Any) -> bool:
    return type(value) in (int, float)


def _truth(value: Any) -> bool:
    return type(value) is bool
