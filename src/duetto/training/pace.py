"""How fast a run goes, evaluations and checkpoints left out, and whether it has collapsed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

COLLAPSE = 4.0  # times slower than the best window; what other programs take on a shared machine stays below it


class Pace:
    """Steps per second from window to window.

    PyTorch's threads wait for each other at every operation. Where another program takes a core from them, a run can
    fall to a few per cent of its speed, which no one sees who does not look at the clock.
    """

    def __init__(self) -> None:
        self._began: float | None = None
        self._paused = 0.0
        self._best = 0.0
        self._warned = False

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Time in here is not the steps'."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self._paused += time.perf_counter() - began

    def window(self, steps: int) -> float | None:
        """Steps per second of the `steps` since the last call; None at the first, which includes compilation."""
        now = time.perf_counter()
        seconds = None if self._began is None else now - self._began - self._paused
        self._began, self._paused = now, 0.0
        return None if seconds is None else steps / max(seconds, 1e-9)

    def collapsed(self, rate: float, learning: bool) -> bool:
        """Whether this window is, for the first time, far slower than the best one; only learning counts."""
        if not learning:
            return False
        self._best = max(self._best, rate)
        if self._warned or rate * COLLAPSE > self._best:
            return False
        self._warned = True
        return True
