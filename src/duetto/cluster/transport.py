"""The calls that Duetto needs of a cluster; `Transport` has all of them.

    start   a new process with an object in it                     put    a value, for `start` and `call`
    call    a method of the object, without waiting                kill   a process at once
    wait    for the answers

A call is executed at most once. If its answer is lost, the trainer does not know whether the call was executed, and
replaces the process as if it had died (`actor_pool`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, Protocol

Worker = Any  # a transport's handle of a process
Call = Hashable  # a transport's handle of a call


class Answer(NamedTuple):
    """The result of a call: a value, or the reason why it failed."""

    value: Any = None
    failure: str = ""  # the end of a sentence that starts with the process's name: "died"
    details: str = ""  # further information, in several lines


class Transport(Protocol):
    """Starts and calls processes. No method raises if a process fails: `wait` reports it."""

    def start(self, kind: Callable[..., Any], *arguments: Any) -> Worker:
        """Start a process with the object `kind(*arguments)` in it. It may start as late as its first call."""
        ...

    def call(self, worker: Worker, *message: Any) -> Call:
        """Call `do(*message)` of the worker's object, without waiting for the answer."""
        ...

    def wait(self, calls: Sequence[Call], timeout: float, enough: int | None = None) -> dict[Call, Answer]:
        """Wait until all calls, or `enough` of them, are done; return the answers of all that are done.

        Wait for at most `timeout` seconds.
        """
        ...

    def put(self, value: Any) -> Any:
        """Store a value for processes; return a reference that `start` and `call` accept instead of the value."""
        ...

    def kill(self, worker: Worker) -> None:
        """Kill the worker's process at once."""
        ...

    def clock(self) -> float:
        """Return the time in seconds, for timeouts."""
        ...

    def pause(self, seconds: float) -> None:
        """Wait for this many seconds."""
        ...

    def close(self) -> None:
        """Disconnect from the cluster, and end it if it was started here."""
        ...
