"""Folders as a stranger might make them: demonstrations with correct checksums."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from demo_cases import description, episode

from duetto import demonstrations
from duetto.demonstrations import Demonstration
from duetto.networks.spaces import Box, Discrete
from duetto.storage.manifest import FileRecord, seal, unseal
from duetto.storage.tree_codec import decode_arrays, encode_arrays

OBSERVED, ACTED = Box((5,), "uint8", (0.0,), (255.0,)), Discrete(7)
SECRET = np.full((5, 5), 42, np.uint8)  # of the size of an episode's observations
HUGE = 2**40
SEGMENT = "segment-000000000001.safetensors"


def good(parent: Path) -> Path:
    """Two episodes of four steps, and beside the folder files that are nobody else's business."""
    with h5py.File(parent / "secret.hdf5", "w") as file:
        file["observations"] = SECRET
    (parent / "secret.bin").write_bytes(SECRET.tobytes())
    return demonstrations.save(parent / "demos", description(), [episode(seed=i) for i in range(2)], seeds=[0, 1])


def change_manifest(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the manifest's content, and seal it again, as anybody can."""
    content = unseal((folder / "manifest.json").read_bytes())
    change(content)
    (folder / "manifest.json").write_bytes(seal(content))


def write_segment(folder: Path, data: bytes) -> None:
    """Replace the content of the segment, with its checksum."""
    (folder / SEGMENT).write_bytes(data)
    change_manifest(folder, lambda content: content.update(segments=[vars(FileRecord.of(SEGMENT, data))]))


def change_segment(folder: Path, change: Callable[[dict[str, np.ndarray]], Any]) -> None:
    """Change the arrays of the segment, with its checksum."""
    arrays = decode_arrays((folder / SEGMENT).read_bytes())
    change(arrays)
    write_segment(folder, encode_arrays(arrays))


def read_all(folder: Path) -> list[Demonstration]:
    return list(demonstrations.load(folder).episodes)


# ---------------------------------------------------------------------------------------------------- segments
def arrays(**changes: Any) -> Callable[[dict[str, np.ndarray]], Any]:
    return lambda found: found.update(changes)


SEGMENTS: dict[str, Callable[[dict[str, np.ndarray]], Any]] = {
    "an array is missing": lambda found: found.pop("reward"),
    "an array too many": arrays(more=np.zeros(2)),
    "no rows": arrays(length=np.array([4, 2**40])),
    "lengths beyond 64 bits together": arrays(length=np.array([2**63 - 1, 2**63 - 1])),
    "a negative length": arrays(length=np.array([-4, 12])),
    "a length of 0": arrays(length=np.array([8, 0])),
    "lengths of another type": arrays(length=np.array([4.0, 4.0])),
    "lengths of another shape": arrays(length=np.array([[4, 4]])),
    "fewer seeds": arrays(seed=np.array([1])),
    "no episodes": lambda found: found.update({name: rows[:0] for name, rows in found.items()}),
    "parts out of order": arrays(part=np.array([5, -3])),
    "no end": lambda found: found.update(terminated=found["terminated"] & False),
    "a row too few": lambda found: found.update(obs=found["obs"][1:]),
    "an array without rows": arrays(reward=np.float32(1)[...]),
    "rewards in double precision": lambda found: found.update(reward=found["reward"].astype(float)),
    "a reward that is none": lambda found: found["reward"].fill(np.nan),
    "no choice": lambda found: found["action"].fill(7),
}

# ---------------------------------------------------------------------------------------------------- manifest
_BOX = {"kind": "Box", "shape": [5], "dtype": "uint8", "low": [0], "high": [255]}


def described(**changes: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda content: content.update(changes)


def recorded(**changes: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda content: content["segments"][0].update(changes)


MANIFESTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a file outside": recorded(name="../secret.bin"),
    "an absolute file": recorded(name="/etc/passwd"),
    "a size to make room for": recorded(size=HUGE),
    "no size": recorded(size="4"),
    "no segments": described(segments=[]),
    "segments that are none": described(segments=[[]]),
    "an id that is none": described(environment=["CartPole-v1"]),
    "options that are none": described(options="fast"),
    "options without an end": described(options=json.loads('{"a":' * 300 + "1" + "}" * 300)),
    "versions that are none": described(versions={"duetto": {}}),
    "an expert who is a number": described(expert=1),
    "a space of nothing": described(observation_space={}),
    "a space in a space": described(observation_space={"kind": "Dict", "parts": {"a": {"kind": "Dict", "parts": {}}}}),
    "a space of texts": described(observation_space=_BOX | {"low": ["a"]}),
    "a huge space": described(observation_space=_BOX | {"shape": [HUGE]}),
    "a space of objects": described(observation_space=_BOX | {"dtype": "object"}),
    "bounds of another space": described(observation_space=_BOX | {"low": [0, 0]}),
    "another space": described(observation_space=_BOX | {"shape": [6]}),
    "a format that is a text": described(version="1"),
    "a checkpoint's format": described(format="duetto-checkpoint"),
    "a field is missing": lambda content: content.pop("environment"),
}
