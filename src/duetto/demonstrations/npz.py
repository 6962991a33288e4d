"""Read arrays from an npz file of anybody's: no pickle, and no more memory than the file can account for.

NumPy makes room for what an array's header claims before it reads it, and `zipfile` unpacks what is there, however much
that is. Both sizes are compared with the file's first.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from duetto.demonstrations.form import EXPANSION, ROOM

_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def read_npz(path: Path, wanted: Sequence[str]) -> dict[str, np.ndarray]:
    """Read the arrays `wanted` of the file; others are not unpacked.

    Raises:
        ValueError: An array is missing, holds no numbers, or claims to be larger than it can be.
        Exception: Another of `form.DAMAGE`, from NumPy and `zipfile`.
    """
    with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
        if not isinstance(file, np.lib.npyio.NpzFile) or file.zip is None:
            raise ValueError("It is one array, and no npz file.")
        missing = [name for name in wanted if name not in file.files]
        if missing:
            raise ValueError(f"The arrays {missing} are missing. It has {sorted(file.files)}.")
        size = path.stat().st_size
        _check_sizes(file.zip, [f"{name}.npy" for name in wanted], max(ROOM, EXPANSION * size), size)
        return {name: _numbers(name, file[name]) for name in wanted}


def _check_sizes(archive: zipfile.ZipFile, members: list[str], most: int, size: int) -> None:
    """Raise ValueError unless each array is as large as its member says, and all of them fit into `most` bytes."""
    infos = [archive.getinfo(member) for member in members]
    claimed = sum(info.file_size for info in infos)
    if claimed > most or any(info.compress_size > size for info in infos):
        raise ValueError(
            f"It claims to hold {claimed:,} bytes, and has {size:,}. It is damaged, or made to fill memory."
        )
    for info in infos:
        with archive.open(info) as member:
            header = _HEADERS.get(npy.read_magic(member))
            if header is None:
                raise ValueError(f"{info.filename} is of a version of NumPy's format that none of its numbers needs.")
            shape, _, dtype = header(member)
            if not dtype.hasobject and math.prod(shape) * dtype.itemsize != info.file_size - member.tell():
                raise ValueError(f"{info.filename} claims to be {dtype} {shape}, and is not of that size.")


def _numbers(name: str, array: Any) -> np.ndarray:
    if array.dtype.kind not in "biuf":
        raise ValueError(f"The array {name!r} holds {array.dtype}, and no numbers.")
    return array
