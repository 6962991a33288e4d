"""Images of a batch that are referred to instead of held: by the rows of the table that they lie in.

    table    row 0 1 2 3 4 ..     one frame each, (C, H, W) uint8
    index    (B, k)               of each image the rows of its k frames, the oldest first
    images   (B, k C, H, W)       the frames side by side along the first axis

Code that asks for the images as an array gets them. A device that has a copy of the table needs the index alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from duetto.functional.trees import mapped

Array = Any  # of NumPy, PyTorch or JAX
Tree = Any


class Table:
    """An array of images (rows, C, H, W) uint8 that tracks which rows were written since `news` was last called.

    Rows are set, taken and sliced as the array's.

    Attributes:
        array: The images. Set rows of the table, never of this.
        writes: How often rows were set.
    """

    def __init__(self, array: np.ndarray, written: bool) -> None:
        """Wrap `array`. Set `written` where it may hold images already."""
        self.array: np.ndarray = array
        self.writes: int = 0
        self._new = np.ones(len(array), bool) if written else np.zeros(len(array), bool)

    def __setitem__(self, index: Any, values: np.ndarray) -> None:
        """Write images (K, C, H, W) to the rows `index` (K,)."""
        self.array[index] = values
        self._new[index] = True
        self.writes += 1

    def __getitem__(self, index: Any) -> np.ndarray:
        """Images of a slice or of rows (K,)."""
        return self.array[index]

    def take(self, index: np.ndarray, axis: int = 0) -> np.ndarray:
        """Images (..., C, H, W) of rows (...)."""
        return self.array.take(index, axis=axis)

    def news(self) -> np.ndarray:
        """Rows that were set since the last call, (K,) int64, each once, in order."""
        rows = np.flatnonzero(self._new)
        self._new[rows] = False
        return rows


class Picked:
    """Images (..., k C, H, W) uint8 of a table, by their rows. They are valid only until the table's next row is set.

    Attributes:
        table: The table that the images lie in.
    """

    dtype: np.dtype[Any] = np.dtype(np.uint8)

    def __init__(self, table: Table, index: np.ndarray) -> None:
        """Refer to images by `index` (..., k), the rows of each image's frames."""
        self.table: Table = table
        self._index, self._writes = index, table.writes
        channels, *rest = table.array.shape[1:]
        self.shape: tuple[int, ...] = (*index.shape[:-1], index.shape[-1] * channels, *rest)

    @property
    def index(self) -> np.ndarray:
        """The rows of each image's frames, (..., k) int.

        Raises:
            RuntimeError: The table has changed since, so other images may lie there.
        """
        if self.table.writes != self._writes:
            raise RuntimeError("The memory has changed since this batch was drawn: learn from a batch before adding.")
        return self._index

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """The images. Raises RuntimeError as `index` does."""
        images = joined(self.table.take(self.index))
        return images if dtype is None else images.astype(dtype)

    def __getitem__(self, item: Any) -> np.ndarray:
        """A part of the array of images."""
        return np.asarray(self)[item]


def joined(frames: Array) -> Array:
    """Frames (..., k, C, H, W) as images (..., k C, H, W)."""
    *lead, number, channels, height, width = frames.shape
    return frames.reshape((*lead, number * channels, height, width))


def held(obs: Tree) -> Tree:
    """The observation with arrays in place of images that are only referred to."""
    return mapped(np.asarray, obs)
