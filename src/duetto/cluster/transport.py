"""What is needed of a cluster: five calls.

    start   a new process somewhere, with an object in it          put    a value that later processes are started with
    call    ask the object something; nobody waits                 kill   end a process, whatever it is doing
    wait    for what was asked

What is asked may leave a value where it was made: then what is waited for is the rest, and whatever stands for the
value goes with another call, whose process gets it from there. So it never passes through here, unless it is waited
for. It is gone with the machine that it lies on.

A call is made at most once by Ray, but may have been *made* although its answer was lost; and a transport may as well
make it twice, or hand out an answer that it had handed out before. So whoever asks numbers what he asks (`crew.py`),
and whoever answers a repeated number gives the same answer again (`host.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, Protocol

Worker = Any  # a process, known to its transport
Call = Hashable  # what was asked of it


class Answer(NamedTuple):
    """What came of a call: a value or, where there will be none, why."""

    value: Any = None
    failure: str = ""  # the rest of a sentence that begins with the process: "died."
    details: str = ""  # whatever else is known of it, in several lines
    gone: bool = False  # the process is no more; otherwise it may be asked again
    left: Any = None  # what stands for the value that was left where it was made
    missing: bool = False  # a value that was left somewhere, and that the call was to go with, is no more


class Transport(Protocol):
    """See above; no call of it raises because of what happens to a process, `wait` tells."""

    def start(self, kind: Callable[..., Any], *arguments: Any, gpus: int = 0) -> Worker:
        """A process with so many GPUs, at the latest at its first call; `arguments` may be what `put` gave."""
        ...

    def call(self, worker: Worker, *message: Any, leaves: bool = False) -> Call:
        """Ask the worker's object for `do(*message)`; or for `leave(*message)`, a pair whose second one is left there.

        What stands for that may be among a message, or be waited for as a call is.
        """
        ...

    def wait(self, calls: Sequence[Call], timeout: float, enough: int | None = None) -> dict[Call, Answer]:
        """Until all of them, or `enough`, have come to something, or for `timeout` seconds: what all those have come to
        that have by then.
        """
        ...

    def put(self, value: Any) -> Any:
        """A value that is sent to processes: what stands for it."""
        ...

    def kill(self, worker: Worker) -> None:
        """End it, without a word."""
        ...

    def address(self) -> str:
        """By which its machines reach this one; "" where there is no other machine.

        Raises UsageError where they cannot.
        """
        ...

    def clock(self) -> float:
        """Seconds, for timeouts."""
        ...

    def pause(self, seconds: float) -> None:
        """Let so much time pass."""
        ...

    def close(self) -> None:
        """Let go of the cluster, and end it if it is ours."""
        ...
