"""Keeping freed memory, for programs that free and want the same large arrays at every update."""

from __future__ import annotations

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # mallopt(3)


def keep() -> None:
    """Make glibc keep the memory that this process frees; elsewhere nothing happens.

    Otherwise it maps large arrays anew, page by page filled with zeros, and unmaps them again, at every update: 9,000
    and more page faults for one minibatch of images, a third of its time (PyTorch, AMD EPYC, Zen 5: 69 ms of CPU time
    instead of 53 in bfloat16), 8,500 for CrossQ's critics of 1,024 and 1,024 (JAX, an Intel Xeon with AMX: 84 ms
    instead of 73), 2,200 for an LSTM in bfloat16 (PyTorch, there: 18.0 ms instead of 13.1).
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    if mallopt is not None:
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
