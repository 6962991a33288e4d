"""A thread that does the work it is given, in order, while the caller goes on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from duetto.algorithms.base import Array
from duetto.learners.base import Metrics, on_host

MOST = 4  # things to do that wait; whoever gives more waits


class Beside:
    """A thread that works for its caller. An error in it is raised by a later call of `begin` or `finish`."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "learning")
        self._begun: deque[Future[Any]] = deque()

    def begin(self, work: Callable[[], Any]) -> Future[Any]:
        """Submit work, which is done after all earlier work. Waits while `MOST` pieces of work are not done."""
        while self._begun and (len(self._begun) >= MOST or self._begun[0].done()):
            self._begun[0].result()
            self._begun.popleft()
        self._begun.append(self._thread.submit(work))
        return self._begun[-1]

    def close(self) -> None:
        """Cancel all work that has not begun, without waiting."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def finish(self) -> None:
        """Wait until all work is done."""
        while self._begun:
            self._begun[0].result()
            self._begun.popleft()


class Later:
    """The `Metrics` of an update that may not be done: looking at them waits for it."""

    def __init__(self, update: Future[Metrics]) -> None:
        self._update = update

    @property
    def names(self) -> tuple[str, ...]:
        """See `Metrics`."""
        return self._update.result().names

    @property
    def values(self) -> Array:
        """See `Metrics`."""
        return self._update.result().values

    @property
    def priority(self) -> Array | None:
        """See `Metrics`."""
        return self._update.result().priority

    def value(self, name: str) -> float:
        """See `Metrics`."""
        return float(on_host(self.values)[self.names.index(name)])
