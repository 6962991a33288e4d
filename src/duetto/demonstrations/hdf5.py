"""Episodes from Minari's HDF5 file, read so that a stranger's file is read or refused, and does nothing else.

The spaces say what is read, and how large it is; the file is asked for that alone, and Minari's own reader is not: it
follows every link, and makes as much room as the file claims to need. Refused are

- links that are not to a part of this file, data that lies in other files, virtual datasets made of other files;
- compressed data: a megabyte can claim to be a gigabyte, and a filter may be a plug-in. Minari compresses nothing;
- arrays that are larger than the file.
"""

from __future__ import annotations

import io
import math
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from duetto.demonstrations.form import DATA, EXPANSION, ROOM, h5py
from duetto.demonstrations.sealing import check_own_file
from duetto.environments.spaces import Layout, Leaf
from duetto.networks.spaces import Box, Space


class EpisodeFile:
    """The data of one dataset. Every method raises ValueError, or another of `form.DAMAGE`, where it is not right."""

    def __init__(self, folder: Path, jpeg: bool = False) -> None:
        """`jpeg`: images are JPEGs, which is Minari's default, not ours."""
        self._path, self._jpeg = folder / DATA, jpeg
        check_own_file(self._path)
        self.size: int = self._path.stat().st_size  # bytes

    def count(self) -> int:
        """Return the number of episodes."""
        with h5py().File(self._path, "r") as file:
            return len(file)

    def steps(self, number: int) -> int:
        """Return the length of an episode, in steps."""
        with h5py().File(self._path, "r") as file:
            return len(self._numbers(_child(file, f"episode_{number}/rewards")))

    def read(self, number: int, observation: Layout, action: Layout) -> dict[str, Any]:
        """Read an episode's arrays by Minari's names, observations nested as their space is, and its seed, or None."""
        with h5py().File(self._path, "r") as file:
            group = _child(file, f"episode_{number}")
            rewards = self._numbers(_child(group, "rewards"))
            steps = len(rewards)
            return {
                "observations": self._tree(_child(group, "observations"), observation, steps + 1),
                "actions": self._tree(_child(group, "actions"), action, steps),
                "rewards": rewards,
                "terminations": self._numbers(_child(group, "terminations")),
                "truncations": self._numbers(_child(group, "truncations")),
                "seed": _seed(group),
            }

    def _tree(self, node: Any, layout: Layout, rows: int) -> Any:
        if layout.single:
            return self._array(node, layout.leaves[0], rows)
        tree: dict[Any, Any] = {}
        for leaf in layout.leaves:
            names = [f"_index_{part}" if isinstance(part, int) else str(part) for part in leaf.path]
            place = tree
            for part in leaf.path[:-1]:
                place = place.setdefault(part, {})
            place[leaf.path[-1]] = self._array(_child(node, "/".join(names)), leaf, rows)
        return tree

    def _array(self, dataset: Any, leaf: Leaf, rows: int) -> np.ndarray:
        if self._jpeg and _is_image(leaf.space):
            return self._images(dataset, leaf.shape, rows)
        array = self._numbers(dataset)
        if array.size != rows * math.prod(leaf.shape):
            raise ValueError(f"{dataset.name} has {array.size:,} numbers; {rows} rows of {leaf.shape} are needed")
        return array

    def _numbers(self, dataset: Any) -> np.ndarray:
        self._check_here(dataset)
        if dataset.dtype.kind not in "biuf":
            raise ValueError(f"{dataset.name} holds {dataset.dtype}, and no numbers")
        return dataset[()]

    def _images(self, dataset: Any, shape: tuple[int, ...], rows: int) -> np.ndarray:
        self._check_here(dataset)
        if h5py().check_vlen_dtype(dataset.dtype) != np.uint8 and dataset.dtype != np.uint8:
            raise ValueError(f"{dataset.name} holds {dataset.dtype}, and no JPEGs")
        if len(dataset) != rows or rows * math.prod(shape) > max(ROOM, EXPANSION * self.size):
            raise ValueError(
                f"{dataset.name} has {len(dataset):,} JPEGs of {shape}; {rows} that fit into it are needed"
            )
        images = np.empty((rows, *shape), np.uint8)
        for row in range(rows):
            images[row] = _decode(dataset[row], shape)
        return images

    def _check_here(self, dataset: Any) -> None:
        """Raise ValueError unless all that the dataset claims to hold is in this file, uncompressed."""
        if not isinstance(dataset, h5py().Dataset):
            raise ValueError(f"{dataset.name} is no array")
        made = dataset.id.get_create_plist()
        if dataset.is_virtual or made.get_external_count():
            raise ValueError(f"{dataset.name} has its data in another file, and only this one is read")
        if made.get_nfilters():
            raise ValueError(f"{dataset.name} is compressed, which Minari's data never is: h5repack -f NONE unpacks it")
        claimed = math.prod(dataset.shape or ()) * dataset.dtype.itemsize
        if claimed > min(self.size, dataset.id.get_storage_size()):
            raise ValueError(f"{dataset.name} claims to have {claimed:,} bytes, more than the file holds of it")


def _child(group: Any, path: str) -> Any:
    """Return what lies at `path` in a group. ValueError unless all links are hard: others may lead out of the file."""
    for name in filter(None, path.split("/")):
        if not isinstance(group, h5py().Group):
            raise ValueError(f"{group.name} has no {name}")
        if group.id.links.get_info(name.encode()).type != h5py().h5l.TYPE_HARD:
            raise ValueError(f"{group.name}/{name} is a link, and only what lies here is read")
        group = group[name]
    return group


def _seed(group: Any) -> int | None:
    if "seed" not in group.attrs:
        return None
    found = group.attrs.get_id("seed")
    if found.shape != () or found.dtype.kind not in "iu":
        raise ValueError(f"the seed of {group.name} is no whole number")
    return int(group.attrs["seed"])


def _is_image(space: Space) -> bool:
    """Apply Minari's own rule for the spaces whose images it stores as JPEGs."""
    if not isinstance(space, Box) or space.dtype != "uint8" or len(space.shape) not in (2, 3):
        return False
    return min(space.shape[:2]) >= 32 and set(space.low) == {0.0} and set(space.high) == {255.0}


def _decode(data: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    pillow = import_module("PIL.Image")
    try:
        with pillow.open(io.BytesIO(data.tobytes()), formats=["JPEG"]) as image:
            if image.size != (shape[1], shape[0]):  # known before anything is decoded
                raise ValueError(f"a JPEG has the size {image.size}, its space {shape}")
            return np.asarray(image, np.uint8)
    except pillow.DecompressionBombError as error:
        raise ValueError(f"a JPEG claims to be too large: {error}") from error
