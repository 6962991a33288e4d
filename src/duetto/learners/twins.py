"""Images of a replay memory on the device: each row is copied there once, and a batch brings the numbers of rows.

    memory   table    rows 0 1 2 3 ..       the truth, on the host; notes which rows are written
                        |   before an update: those that are new, in one copy
    device   twin     rows 0 1 2 3 ..       byte for byte the table
    batch             Rows: (B, k) int32    within the update the images (B, k C, H, W) are gathered from the twin

Nothing of it is part of a checkpoint: what a run goes on with is written to the table, and so it is new.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from duetto.functional.trees import mapped
from duetto.networks.pictures import Picked, Table

ON_DEVICE = "DUETTO_IMAGES_ON_DEVICE"  # in the environment: 0, never; 1, for a processor's learner, too
MOST = 2**26  # bytes that are copied at a time, or one row
SHARE = 0.5  # of the free memory of a device, that all twins may take
IMAGES = "images/"  # with it begin the twins' names

Array = Any


def wanted(gpu: bool) -> bool:
    """Whether a learner should keep images: on a GPU, unless the environment says otherwise."""
    return os.environ.get(ON_DEVICE, "1" if gpu else "0") != "0"


class Rows(NamedTuple):
    """Stand-in for a batch's images: the twin's name, and the rows (..., k) int32 of each image's frames.

    They are one entry of a dict, so that the name belongs to the batch's structure, which compiled programs know it by.
    """

    of: dict[str, Any]


class Twins(ABC):
    """The twins of one memory's tables. A table is held by its memory alone.

    Attributes:
        arrays: The twins by name, "images/<field>", (rows, C, H, W) uint8 each.
    """

    arrays: dict[str, Array]

    def __init__(self) -> None:
        self.arrays = {}
        self._tables: WeakValueDictionary[str, Table] = WeakValueDictionary()

    def keep(self, tables: Mapping[str, Table]) -> list[str]:
        """Keep twins of these tables, and no others, from here on; to be called before the first update.

        Returns:
            A sentence, where there is no room: then batches bring their images. Else an empty list.
        """
        self._tables.clear()
        self.make({})  # first: two have no room, perhaps
        needed, room = sum(table.array.nbytes for table in tables.values()), self.room()
        if room is not None and needed > SHARE * room:
            return [
                f"The replay memory's images ({needed / 2**30:.1f} GiB) are not kept on the device, of whose memory "
                f"{room / 2**30:.1f} GiB are free: each batch brings its own. With a lower replay_capacity they would "
                f"be; {ON_DEVICE}=0 in the environment leaves it so without a word."
            ]
        self._tables.update({IMAGES + name: table for name, table in tables.items()})
        self.make({name: table.array.shape for name, table in self._tables.items()})
        return []

    def named(self, batch: Any) -> Any:
        """The batch with `Rows` in place of images that have a twin; all twins are brought up to date.

        Images of other tables become arrays.

        Raises:
            RuntimeError: Rows were written after the batch was drawn.
        """
        for name, table in self._tables.items():
            for rows in _pieces(table.news(), table.array.nbytes // len(table.array)):
                self.bring(name, rows, table[rows])
        names = {id(table): name for name, table in self._tables.items()}
        return mapped(lambda leaf: _rows(leaf, names.get(id(leaf.table))) if isinstance(leaf, Picked) else leaf, batch)

    def shown(self, batch: Any, twins: Mapping[str, Array]) -> Any:
        """The batch that `named` was given, with images gathered from the twins, within an update."""

        def images(leaf: Any) -> Any:
            if not isinstance(leaf, Rows):
                return leaf
            ((name, index),) = leaf.of.items()
            return self.images(twins[name], index)

        return mapped(images, batch, leaf=Rows)

    @abstractmethod
    def room(self) -> int | None:
        """Bytes that are free on the device; None where that is not known."""

    @abstractmethod
    def make(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Make twins full of zeros, and forget those before."""

    @abstractmethod
    def bring(self, name: str, rows: np.ndarray, values: np.ndarray) -> None:
        """Copy `values` (K, C, H, W) to the different rows (K,), after all that was asked of the device before."""

    @abstractmethod
    def images(self, twin: Array, index: Array) -> Array:
        """Images (..., k C, H, W), of rows (..., k) of a twin."""


def _rows(leaf: Picked, name: str | None) -> Any:
    if name is None:
        return np.asarray(leaf)
    return Rows({name: leaf.index.astype(np.int32)})


def _pieces(rows: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """Pieces of the rows, of `size` bytes a row and at most `MOST` in all: a power of two of them, or what is left."""
    number = 1 << (max(1, MOST // size).bit_length() - 1)
    for begin in range(0, len(rows), number):
        yield rows[begin : begin + number]
