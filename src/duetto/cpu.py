"""The CPU of this process: its name, its cores, and NumPy's threads on it."""

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
    """Return the CPU's name and a checksum of its instructions, if they are known: `AMD EPYC 9B14 (1a2b3c4d)`.

    Virtual machines may hide the model.
    """
    fields = _cpuinfo()
    name = " ".join(fields.get("model name", "").split()) or platform.processor() or platform.machine()
    flags = " ".join(sorted(_flags(fields)))
    return f"{name} ({hashlib.sha256(flags.encode()).hexdigest()[:8]})" if flags else name or "unknown"


def cores() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def multiplies_bfloat16() -> bool:
    """Return whether the CPU has instructions for products of bfloat16; True if its instructions are not known."""
    flags = _flags(_cpuinfo())
    return not flags or not flags.isdisjoint(("amx_bf16", "avx512_bf16", "bf16"))  # the last one is ARM's


def _cpuinfo() -> dict[str, str]:
    """Return the fields of Linux's `/proc/cpuinfo` by name; empty elsewhere."""
    with suppress(OSError):
        lines = {line for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines() if ":" in line}
        return dict(sorted((name.strip(), value.strip()) for name, value in (line.split(":", 1) for line in lines)))
    return {}


def _flags(fields: dict[str, str]) -> set[str]:
    return set((fields.get("flags") or fields.get("Features") or "").split())


# ---------------------------------------------------------------------------------------------------- NumPy's threads
@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Compute NumPy's matrix products with one thread inside, if NumPy comes from its own wheel.

    OpenBLAS divides a product of one row by 400 x 300 weights among all cores. Its threads then wait for each other
    and for the cores that learn meanwhile, and the last bits depend on their number.
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
    """Return the functions that get and set the threads of the OpenBLAS in NumPy's own wheel; None without one."""
    package = Path(np.__file__).parent
    for file in [*package.parent.glob("numpy.libs/*openblas*"), *package.glob(".dylibs/*openblas*")]:
        try:
            library = ctypes.CDLL(str(file))
            return library.scipy_openblas_get_num_threads64_, library.scipy_openblas_set_num_threads64_
        except (OSError, AttributeError):
            continue
    return None
