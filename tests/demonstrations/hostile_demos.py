"""Folders and files as a stranger might make them, sealed as if they were ours; and one that is as it should be."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from demo_cases import description, episode

from duetto import demonstrations
from duetto.demonstrations import Demonstration, open_source
from duetto.demonstrations.sealing import write_seal
from duetto.networks.spaces import Box, Discrete

OBSERVED, ACTED = Box((5,), "uint8", (0.0,), (255.0,)), Discrete(7)
SECRET = np.full((5, 5), 42, np.uint8)  # of the size of an episode's observations
HUGE = 2**40


def good(parent: Path) -> Path:
    """Two episodes of four steps, and beside the folder files that are nobody else's business."""
    with h5py.File(parent / "secret.hdf5", "w") as file:
        file["observations"] = SECRET
    (parent / "secret.bin").write_bytes(SECRET.tobytes())
    return demonstrations.save(parent / "demos", description(), [episode(seed=i) for i in range(2)], seeds=[0, 1])


def foreign(folder: Path) -> Path:
    """The same folder as Minari's alone."""
    change_metadata(folder, lambda metadata: metadata.pop("duetto"))
    (folder / "manifest.json").unlink()
    return folder


def change_metadata(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    metadata = json.loads((folder / "metadata.json").read_text())
    change(metadata)
    (folder / "metadata.json").write_text(json.dumps(metadata))
    write_seal(folder)


def read_all(folder: Path) -> list[Demonstration]:
    return list(demonstrations.load(folder).episodes)


def import_all(source: Path) -> list[Demonstration]:
    return [demo for demo, _ in open_source(str(source), OBSERVED, ACTED).episodes]


# ---------------------------------------------------------------------------------------------------- HDF5
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


def _seed(value: Any) -> Callable[[h5py.Group, Path], None]:
    return lambda group, parent: group.attrs.__setitem__("seed", value)


HDF5: dict[str, tuple[Callable[[h5py.Group, Path], Any], str]] = {
    "an external link": (
        _instead("observations", lambda parent: h5py.ExternalLink(parent / "secret.hdf5", "observations")),
        "is a link",
    ),
    "a soft link": (_instead("observations", h5py.SoftLink("/episode_0/observations")), "is a link"),
    "a link to nowhere": (_instead("actions", h5py.SoftLink("/nowhere")), "is a link"),
    "an external episode": (_outer(lambda parent: h5py.ExternalLink(parent / "secret.hdf5", "/")), "is a link"),
    "external storage": (_dataset("observations", (5, 5), np.uint8, external=True), "in another file"),
    "a virtual dataset": (_virtual, "in another file"),
    "gzip": (_dataset("observations", (5, 5), np.uint8, compression="gzip"), "is compressed"),
    "a terabyte in no chunks": (_dataset("rewards", (HUGE,), np.float32, chunks=(1024,)), "claims to have"),
    "a terabyte nowhere": (_dataset("observations", (HUGE,), np.uint8), "claims to have"),
    "a group": (_instead("rewards", lambda parent: None), "is no array"),
    "texts": (_instead("rewards", ["a", "b"]), "no numbers"),
    "references": (_dataset("rewards", (1,), h5py.ref_dtype), "claims to have"),
    "nothing": (_instead("rewards", h5py.Empty("f")), "claims to have"),
    "one number": (_instead("rewards", np.float32(1)), "len"),
    "no ends": (_dataset("terminations", (0,), bool), "(index|as many rewards, terminations)"),
    "a row too few": (_instead("observations", SECRET[1:]), "rows"),
    "a seed that is a text": (_seed("0"), "seed"),
    "many seeds": (_seed([1, 2]), "seed"),
}


def change_data(folder: Path, change: Callable[[h5py.Group, Path], Any]) -> None:
    """Change episode 1, and seal the folder again where it has a seal."""
    with h5py.File(folder / "main_data.hdf5", "a") as file:
        group = file["episode_1"]
        if change is HDF5["a group"][0]:
            del group["rewards"]
            group.create_group("rewards")
        else:
            change(group, folder.parent)
    if (folder / "manifest.json").exists():
        write_seal(folder)


# ---------------------------------------------------------------------------------------------------- metadata
def described(**changes: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda metadata: metadata["duetto"].update(changes)


_BOX = {"kind": "Box", "shape": [5], "dtype": "uint8", "low": [0], "high": [255]}
METADATA: dict[str, Callable[[dict[str, Any]], Any]] = {
    "lengths to make room for": described(lengths=[HUGE, HUGE]),
    "lengths beyond 64 bits": described(lengths=[2**70, 4]),
    "negative lengths": described(lengths=[-4, 12]),
    "texts as returns": described(returns=["a", "b"]),
    "fewer seeds": described(seeds=[1]),
    "seeds of lists": described(seeds=[[], {}]),
    "parts out of order": described(parts=[5, -3]),
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
    "a format that is a text": described(format="1"),
    "a list instead": lambda metadata: metadata.update(duetto=[]),
    "another storage": lambda metadata: metadata.update(data_format="arrow"),
    "no episodes": described(lengths=[], returns=[], terminated=[], seeds=[], parts=[]),
}


def minari_space(**changes: Any) -> Callable[[dict[str, Any]], Any]:
    def change(metadata: dict[str, Any]) -> None:
        metadata["observation_space"] = json.dumps(json.loads(metadata["observation_space"]) | changes)

    return change


FOREIGN: dict[str, Callable[[dict[str, Any]], Any]] = {
    "bounds for a terabyte": minari_space(shape=[HUGE], low=0, high=1),
    "bytes for a terabyte": minari_space(dtype=f"V{2**30}"),
    "many bits": minari_space(type="MultiBinary", n=HUGE),
    "no kind": minari_space(type="Sphere"),
    "more choices than 64 bits": lambda metadata: metadata.update(
        action_space=json.dumps({"type": "Discrete", "n": 2**70, "start": 0})
    ),
    "no texts": lambda metadata: metadata.update(observation_space={}),
    "another storage": lambda metadata: metadata.update(data_format="arrow"),
    "nested without an end": lambda metadata: metadata.update(action_space="[" * 10**5),
}


# ---------------------------------------------------------------------------------------------------- npz
def good_npz(path: Path, **changes: Any) -> Path:
    arrays = {
        "observations": np.zeros((4, 5), np.uint8),
        "actions": np.array([1, 2, 3]),
        "rewards": np.ones(3),
        "terminations": np.array([False, False, True]),
        "truncations": np.zeros(3, bool),
    }
    path.parent.mkdir(exist_ok=True)
    np.savez_compressed(path, **(arrays | changes))
    return path


def claiming(path: Path, shape: tuple[int, ...], dtype: str = "<f8", data: bytes = b"\0" * 24) -> Path:
    """An npz file whose rewards have such a header, and this content."""
    good_npz(path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": dtype, "fortran_order": False, "shape": shape})
    members["rewards.npy"] = header.getvalue() + data
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


class Trap:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self._path),)
