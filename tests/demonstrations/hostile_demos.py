"""Malicious folders: demonstrations with correct checksums, and Minari datasets."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from demo_cases import description, episode

from duetto import demonstrations
from duetto.demonstrations import Demonstration, import_minari, minari_datasets
from duetto.networks.spaces import Box, Discrete
from duetto.storage.manifest import FileRecord, read_sealed, seal
from duetto.storage.tree_codec import decode_arrays, encode_arrays

OBSERVED, ACTED = Box((5,), "uint8", (0.0,), (255.0,)), Discrete(7)
SECRET = np.full((5, 5), 42, np.uint8)  # has the size of an episode's observations
HUGE = 2**40
SEGMENT = "segment-000000000001.safetensors"


def save_good_demos(parent: Path) -> Path:
    """Save two episodes of four steps, and secret files next to their folder."""
    with h5py.File(parent / "secret.hdf5", "w") as file:
        file["observations"] = SECRET
    (parent / "secret.bin").write_bytes(SECRET.tobytes())
    return demonstrations.save(parent / "demos", description(), [episode(seed=i) for i in range(2)], seeds=[0, 1])


def export_as_minari(folder: Path) -> Path:
    """Export the episodes of `folder` as a Minari dataset next to it."""
    made = folder.with_name("minari")
    demonstrations.export_minari(demonstrations.load(folder), made)
    return made


def change_manifest(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the manifest and update its checksum, as anyone can."""
    content = read_sealed(folder / "manifest.json")
    change(content)
    (folder / "manifest.json").write_bytes(seal(content))


def write_segment(folder: Path, data: bytes) -> None:
    """Replace the file of the first episode, and update its checksum."""
    (folder / SEGMENT).write_bytes(data)
    change_manifest(folder, lambda content: content["episodes"][0].update(vars(FileRecord.of(SEGMENT, data))))


def change_segment(folder: Path, change: Callable[[dict[str, np.ndarray]], Any]) -> None:
    """Change the arrays of the first episode, and update its checksum."""
    arrays = decode_arrays((folder / SEGMENT).read_bytes())
    change(arrays)
    write_segment(folder, encode_arrays(arrays))


def change_metadata(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change Minari's metadata."""
    metadata = json.loads((folder / "metadata.json").read_text())
    change(metadata)
    (folder / "metadata.json").write_text(json.dumps(metadata))


def read_all(folder: Path) -> list[Demonstration]:
    return list(demonstrations.load(folder).episodes)


def import_all(source: Path) -> list[Demonstration]:
    """Import with Minari in a child process."""
    output = source.parent / "imported"
    import_minari(str(source), output, description(), trust=True, overwrite=True)
    return read_all(output)


def import_in_this_process(source: Path, output: Path) -> None:
    """Import without the child process, which is faster."""
    minari_datasets.convert(source, output, description())


# ---------------------------------------------------------------------------------------------------- segments
def with_arrays(**changes: Any) -> Callable[[dict[str, np.ndarray]], Any]:
    return lambda found: found.update(changes)


SEGMENT_CHANGES: dict[str, Callable[[dict[str, np.ndarray]], Any]] = {
    "missing array": lambda found: found.pop("reward"),
    "missing row": lambda found: found.update(obs=found["obs"][1:]),
    "scalar reward array": with_arrays(reward=np.float32(1)[...]),
    "float64 rewards": lambda found: found.update(reward=found["reward"].astype(float)),
    "NaN reward": lambda found: found["reward"].fill(np.nan),
    "action out of range": lambda found: found["action"].fill(7),
}

# ---------------------------------------------------------------------------------------------------- manifest
_BOX = {"kind": "Box", "shape": [5], "dtype": "uint8", "low": [0], "high": [255]}


def with_manifest(**changes: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda content: content.update(changes)


def with_first_episode(**changes: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda content: content["episodes"][0].update(changes)


MANIFEST_CHANGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "file outside the folder": with_first_episode(name="../secret.bin"),
    "absolute path": with_first_episode(name="/etc/passwd"),
    "huge size": with_first_episode(size=HUGE),
    "size is text": with_first_episode(size="4"),
    "no episodes": with_manifest(episodes=[]),
    "seed is text": with_first_episode(seed="1"),
    "wrong part number": with_first_episode(part=5),
    "neither terminated nor truncated": with_first_episode(terminated=False),
    "deeply nested options": with_manifest(options=json.loads("[" * 300 + "]" * 300)),
    "nested Dict space": with_manifest(
        observation_space={"kind": "Dict", "parts": {"a": {"kind": "Dict", "parts": {}}}}
    ),
    "huge space": with_manifest(observation_space=_BOX | {"shape": [HUGE]}),
    "bounds of another shape": with_manifest(observation_space=_BOX | {"low": [0, 1]}),
    "space of another shape": with_manifest(observation_space=_BOX | {"shape": [6]}),
    "checkpoint format": with_manifest(format="duetto-checkpoint"),
    "missing field": lambda content: content.pop("environment"),
}


# ---------------------------------------------------------------------------------------------------- Minari
def _value_instead(name: str, value: Any) -> Callable[[h5py.Group, Path], None]:
    def put(group: h5py.Group, parent: Path) -> None:
        del group[name]
        group[name] = value(parent) if callable(value) else value

    return put


def _dataset_instead(
    name: str, shape: tuple[int, ...], dtype: Any, **options: Any
) -> Callable[[h5py.Group, Path], None]:
    def put(group: h5py.Group, parent: Path) -> None:
        del group[name]
        if "external" in options:
            options["external"] = [(str(parent / "secret.bin"), 0, 25)]
        group.create_dataset(name, shape, dtype, **options)

    return put


def _virtual_instead(group: h5py.Group, parent: Path) -> None:
    layout = h5py.VirtualLayout(SECRET.shape, np.uint8)
    layout[:] = h5py.VirtualSource(parent / "secret.hdf5", "observations", SECRET.shape)
    del group["observations"]
    group.create_virtual_dataset("observations", layout)


def _soft_link_instead(group: h5py.Group, parent: Path) -> None:
    group["elsewhere"] = h5py.ExternalLink(parent / "secret.hdf5", "/")
    del group["observations"]
    group["observations"] = h5py.SoftLink("/episode_1/elsewhere/observations")


HDF5_CHANGES: dict[str, tuple[Callable[[h5py.Group, Path], Any], str]] = {
    "an external link": (
        _value_instead("observations", lambda parent: h5py.ExternalLink(parent / "secret.hdf5", "observations")),
        "links to other files",
    ),
    "an external link behind a soft link": (_soft_link_instead, "links to other files"),
    "external storage": (_dataset_instead("observations", (5, 5), np.uint8, external=True), "links to other files"),
    "a virtual dataset": (_virtual_instead, "links to other files"),
    "text rewards": (_value_instead("rewards", ["a", "b"]), "another number|could not convert"),
    "no terminations": (_dataset_instead("terminations", (0,), bool), "another number of rewards, terminations"),
    "missing row": (_value_instead("observations", SECRET[1:]), r"shape \(4, 5\), its space says \(5, 5\)"),
}
HUGE_REWARDS = _dataset_instead("rewards", (9 * 2**28,), np.float32, chunks=(1024,))  # 9 GiB, none of it in the file


def change_data(folder: Path, change: Callable[[h5py.Group, Path], Any]) -> None:
    """Change episode 1."""
    with h5py.File(folder / "main_data.hdf5", "a") as file:
        change(file["episode_1"], folder.parent)


METADATA_CHANGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "unknown space type": lambda metadata: metadata.update(observation_space='{"type": "Sphere"}'),
    "missing action space": lambda metadata: metadata.pop("action_space"),
    "unsupported storage format": lambda metadata: metadata.update(data_format="arrow"),
    "deeply nested space": lambda metadata: metadata.update(action_space="[" * 10**5),
}
