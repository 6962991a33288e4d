"""A thread that does what it is given, in order, while whoever gave it goes on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from duetto.algorithms.base import Array
from duetto.learners.base import Metrics, on_host

MOST = 4  # things to do that wait; whoever gives more waits


class Beside:
    """See above. What fails in the thread is raised to whoever gives it something later, or waits."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "learning")
        self._begun: deque[Future[Any]] = deque()

    def begin(self, work: Callable[[], Any]) -> Future[Any]:
        """Have this done, when all that was given before is."""
        while self._begun and (len(self._begun) >= MOST or self._begun[0].done()):
            self._begun[0].result()
            self._begun.popleft()
        self._begun.append(self._thread.submit(work))
        return self._begun[-1]

    def close(self) -> None:
        """Do nothing more."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def finish(self) -> None:
        """Wait until all is done."""
        while self._begun:
            self._begun[0].result()
            self._begun.popleft()


class Later:
    """The `Metrics` of an update that may not be done: it is waited for where somebody looks."""

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
