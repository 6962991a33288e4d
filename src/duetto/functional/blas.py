"""One thread for NumPy's products that make actions and initial weights.

OpenBLAS divides a product of one row by 400 x 300 weights among all cores. Its threads then wait for each other, and
for the cores that learn meanwhile; and the last bits depend on their number.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np


class Threads(NamedTuple):
    """The functions that get and set a library's number of threads."""

    get: Callable[[], int]
    set: Callable[[int], None]


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute NumPy's products inside on one thread where NumPy is as its wheels are; elsewhere on as many as
    before.
    """
    threads = _openblas()
    if threads is None or (before := threads.get()) == 1:
        yield
        return
    threads.set(1)
    try:
        yield
    finally:
        threads.set(before)


@cache
def _openblas() -> Threads | None:
    """Thread functions of the OpenBLAS in NumPy's own wheel, which is loaded already; None where there is none."""
    beside = Path(np.__file__).parent
    for file in [*beside.parent.glob("numpy.libs/*openblas*"), *beside.glob(".dylibs/*openblas*")]:
        try:
            library = ctypes.CDLL(str(file))
            return Threads(library.scipy_openblas_get_num_threads64_, library.scipy_openblas_set_num_threads64_)
        except (OSError, AttributeError):
            continue
    return None
