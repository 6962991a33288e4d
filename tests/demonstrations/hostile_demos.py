"""Folders as a stranger might make them: demonstrations with correct checksums, and Minari datasets."""

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


def foreign(folder: Path) -> Path:
    """The same episodes as a Minari dataset, beside the folder."""
    made = folder.with_name("minari")
    demonstrations.export_minari(demonstrations.load(folder), made)
    return made


def change_manifest(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the manifest's content, and seal it again, as anybody can."""
    content = unseal((folder / "manifest.json").read_bytes())
    change(content)
    (folder / "manifest.json").write_bytes(seal(content))


def write_segment(folder: Path, data: bytes) -> None:
    """Replace the content of the first episode, with its checksum."""
    (folder / SEGMENT).write_bytes(data)
    change_manifest(folder, lambda content: content["episodes"][0].update(vars(FileRecord.of(SEGMENT, data))))


def change_segment(folder: Path, change: Callable[[dict[str, np.ndarray]], Any]) -> None:
    """Change the arrays of the first episode, with its checksum."""
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
    """Import with Minari in its own process."""
    output = source.parent / "imported"
    import_minari(str(source), output, description(), trust=True, overwrite=True)
    return read_all(output)


def import_here(source: Path, output: Path) -> None:
    """Import as the child process does, in this one: quicker."""
    minari_datasets.convert(source, output, description())


# ---------------------------------------------------------------------------------------------------- segments
def arrays(**changes: Any) -> Callable[[dict[str, np.ndarray]], Any]:
    return lambda found: found.update(changes)


SEGMENTS: dict[str, Callable[[dict[str, np.ndarray]], Any]] = {
    "an array is missing": lambda found: found.pop("reward"),
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
    return lambda content: content["episodes"][0].update(changes)


MANIFESTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a file outside": recorded(name="../secret.bin"),
    "an absolute file": recorded(name="/etc/passwd"),
    "a size to make room for": recorded(size=HUGE),
    "no size": recorded(size="4"),
    "no episodes": described(episodes=[]),
    "episodes that are none": described(episodes=[[]]),
    "a seed that is none": recorded(seed="1"),
    "parts out of order": recorded(part=5),
    "no end": recorded(terminated=False),
    "an id that is none": described(environment=["CartPole-v1"]),
    "options that are none": described(options="fast"),
    "options without an end": described(options=json.loads("[" * 300 + "]" * 300)),
    "versions that are none": described(versions={"duetto": {}}),
    "an expert who is a number": described(expert=1),
    "a space of nothing": described(observation_space={}),
    "a space in a space": described(observation_space={"kind": "Dict", "parts": {"a": {"kind": "Dict", "parts": {}}}}),
    "a space of texts": described(observation_space=_BOX | {"low": ["a"]}),
    "a huge space": described(observation_space=_BOX | {"shape": [HUGE]}),
    "a space of objects": described(observation_space=_BOX | {"dtype": "object"}),
    "bounds of another space": described(observation_space=_BOX | {"low": [0, 1]}),
    "another space": described(observation_space=_BOX | {"shape": [6]}),
    "a format that is a text": described(version="1"),
    "a checkpoint's format": described(format="duetto-checkpoint"),
    "a field is missing": lambda content: content.pop("environment"),
}


# ---------------------------------------------------------------------------------------------------- Minari
def _instead(name: str, value: Any) -> Callable[[h5py.Group, Path], None]:
    def put(group: h5py.Group, parent: Path) -> None:
        del group[name]
        group[name] = value(parent) if callable(value) else value

    return put


def _dataset(name: str, shape: tuple[int, ...], dtype: Any, **options: Any) -> Callable[[h5py.Group, Path], None]:
    def put(group: h5py.Group, parent: Path) -> None:
        del group[name]
        if "external" in options:
            options["external"] = [(str(parent / "secret.bin"), 0, 25)]
        group.create_dataset(name, shape, dtype, **options)

    return put


def _virtual(group: h5py.Group, parent: Path) -> None:
    layout = h5py.VirtualLayout(SECRET.shape, np.uint8)
    layout[:] = h5py.VirtualSource(parent / "secret.hdf5", "observations", SECRET.shape)
    del group["observations"]
    group.create_virtual_dataset("observations", layout)


def _outer(link: Callable[[Path], Any]) -> Callable[[h5py.Group, Path], None]:
    """The whole episode is a link."""

    def put(group: h5py.Group, parent: Path) -> None:
        file = group.file
        del file["episode_1"]
        file["episode_1"] = link(parent)

    return put


def _behind_a_soft_link(group: h5py.Group, parent: Path) -> None:
    group["elsewhere"] = h5py.ExternalLink(parent / "secret.hdf5", "/")
    del group["observations"]
    group["observations"] = h5py.SoftLink("/episode_1/elsewhere/observations")


HDF5: dict[str, tuple[Callable[[h5py.Group, Path], Any], str]] = {
    "an external link": (
        _instead("observations", lambda parent: h5py.ExternalLink(parent / "secret.hdf5", "observations")),
        "links to other files",
    ),
    "an external link behind a soft link": (_behind_a_soft_link, "links to other files"),
    "an external episode": (
        _outer(lambda parent: h5py.ExternalLink(parent / "secret.hdf5", "/")),
        "links to other files",
    ),
    "external storage": (_dataset("observations", (5, 5), np.uint8, external=True), "links to other files"),
    "a virtual dataset": (_virtual, "links to other files"),
    "a link to nowhere": (_instead("actions", h5py.SoftLink("/nowhere")), "nowhere|object"),
    "texts": (_instead("rewards", ["a", "b"]), "another number|could not convert"),
    "one number": (_instead("rewards", np.float32(1)), "episode|scalar|dimension"),
    "no ends": (_dataset("terminations", (0,), bool), "another number of rewards, terminations"),
    "a row too few": (_instead("observations", SECRET[1:]), r"shape \(4, 5\), its space says \(5, 5\)"),
}
FILLING = _dataset("rewards", (9 * 2**28,), np.float32, chunks=(1024,))  # 9 GiB, of which nothing is in the file


def change_data(folder: Path, change: Callable[[h5py.Group, Path], Any]) -> None:
    """Change episode 1."""
    with h5py.File(folder / "main_data.hdf5", "a") as file:
        change(file["episode_1"], folder.parent)


FOREIGN: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no kind": lambda metadata: metadata.update(observation_space='{"type": "Sphere"}'),
    "no texts": lambda metadata: metadata.update(observation_space={}),
    "no spaces": lambda metadata: metadata.pop("action_space"),
    "another storage": lambda metadata: metadata.update(data_format="arrow"),
    "nested without an end": lambda metadata: metadata.update(action_space="[" * 10**5),
}
