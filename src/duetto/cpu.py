"""The CPU of this process: its name, its cores, and NumPy's threads."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import numpy as np


@cache
def processor() -> str:
    """Return the CPU's name and a checksum of its instructions: `AMD EPYC 9B14 (1a2b3c4d)`.

    The checksum is missing if the instructions are unknown. It distinguishes CPUs whose names a virtual machine hides.
    """
    fields = cpuinfo()
    name = " ".join(fields.get("model name", "").split()) or platform.processor() or platform.machine()
    flags = " ".join(sorted(_flags(fields)))
    return f"{name} ({hashlib.sha256(flags.encode()).hexdigest()[:8]})" if flags else name or "unknown"


def cores() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def multiplies_bfloat16() -> bool:
    """Return whether the CPU has instructions for bfloat16 products; True if its instructions are unknown."""
    flags = _flags(cpuinfo())
    return not flags or not flags.isdisjoint(("amx_bf16", "avx512_bf16", "bf16"))  # ARM's flag is "bf16"


@cache
def cpuinfo() -> dict[str, str]:
    """Return the fields of Linux's `/proc/cpuinfo` by name; an empty dict on other systems."""
    with suppress(OSError):
        lines = {line for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines() if ":" in line}
        return dict(sorted((name.strip(), value.strip()) for name, value in (line.split(":", 1) for line in lines)))
    return {}


def _flags(fields: dict[str, str]) -> set[str]:
    return set((fields.get("flags") or fields.get("Features") or "").split())


# ---------------------------------------------------------------------------------------------------- NumPy's threads
@contextmanager
def one_blas_thread() -> Iterator[None]:
    """In a `with` block, compute NumPy's matrix products with one thread, if NumPy is from its PyPI wheel.

    OpenBLAS divides even the product of one row and 400 x 300 weights among all cores. Its threads then wait for each
    other and for the threads of PyTorch or JAX. The number of threads also changes the last bits of a product.
    """
    threads = _openblas()
    before = threads[0]() if threads else 1
    if threads is None or before == 1:
        yield
        return
    threads[1](1)
    try:
        yield
    finally:
        threads[1](before)


@cache
def _openblas() -> tuple[Callable[[], int], Callable[[int], None]] | None:
    """Return the functions that get and set OpenBLAS's number of threads; None if NumPy does not bundle it."""
    package = Path(np.__file__).parent
    for file in [*package.parent.glob("numpy.libs/*openblas*"), *package.glob(".dylibs/*openblas*")]:
        try:
            library = ctypes.CDLL(str(file))
            return library.scipy_openblas_get_num_threads64_, library.scipy_openblas_set_num_threads64_
        except (OSError, AttributeError):
            continue
    return None
