"""What Duetto needs of a cluster: five calls.

    start   a new process somewhere, with an object in it          put    a value that later processes are started with
    call    ask the object something; nobody waits                 kill   end a process at once
    wait    for the answers

A call is made at most once. It may have been *made* although its answer is lost: then the process is replaced, as if it
had died (`actor_pool`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, Protocol

Worker = Any  # a process, known to its transport
Call = Hashable  # what was asked of it


class Answer(NamedTuple):
    """The result of a call: a value, or why there will be none."""

    value: Any = None
    failure: str = ""  # the rest of a sentence that starts with the process: "died."
    details: str = ""  # further information, in several lines


class Transport(Protocol):
    """Starts and calls processes. No method raises if a process fails: `wait` reports it."""

    def start(self, kind: Callable[..., Any], *arguments: Any) -> Worker:
        """Start a process, at the latest at its first call; `arguments` may come from `put`."""
        ...

    def call(self, worker: Worker, *message: Any) -> Call:
        """Call `do(*message)` of the worker's object."""
        ...

    def wait(self, calls: Sequence[Call], timeout: float, enough: int | None = None) -> dict[Call, Answer]:
        """Wait until all of the calls, or `enough`, are done, or for `timeout` seconds; the answers of all that are
        done by then.
        """
        ...

    def put(self, value: Any) -> Any:
        """Store a value for processes; returns a reference that `start` and `call` take in its place."""
        ...

    def kill(self, worker: Worker) -> None:
        """Kill the worker's process at once."""
        ...

    def clock(self) -> float:
        """The time in seconds, for timeouts."""
        ...

    def pause(self, seconds: float) -> None:
        """Wait for this many seconds."""
        ...

    def close(self) -> None:
        """Disconnect from the cluster, and end it if it was started here."""
        ...
