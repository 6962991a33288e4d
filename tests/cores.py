"""Compare computations with one and with two threads of OpenBLAS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from duetto import cpu


def with_one_and_two_threads(compute: Callable[[], Any]) -> tuple[Any, Any]:
    """Return the results with one and two threads, and check that `compute` keeps the number of threads."""
    threads = cpu._openblas()
    if threads is None:
        pytest.skip("NumPy has no OpenBLAS of its own here")
    (get, set_threads), found = threads, []
    before = get()
    try:
        for number in (1, 2):
            set_threads(number)
            found.append(compute())
            assert get() == number
    finally:
        set_threads(before)
    return found[0], found[1]
