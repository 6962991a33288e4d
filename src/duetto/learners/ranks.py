"""Several learners of one run: who they are, what they are asked, and what they answer.

    rank 0     the run's own process: draws all random numbers, deals the shares, writes checkpoints
    rank r     a process that has the same parameters and optimisers, and a share of every batch

    rank 0   | deal | loss, gradient |          | step |          | loss ...
    rank 1          | loss, gradient | averaged | step | receipt |

What a rank is asked is a message, and each gets one answer, a receipt: the number of updates made and, now and then, a
checksum of all that learning changes. Equal numbers into equal programs give equal bits, so two checksums that differ
are an error. A rank that is gone takes its parameters along, but all others have the same: the run is taken up from its
newest checkpoint (`PartLostError`), and nothing is made of what is left.
"""

from __future__ import annotations

import json
import pickle
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, Any, NamedTuple, Protocol

import cloudpickle

from duetto.errors import DuettoError, PartLostError, UsageError

CHECKED_EVERY = 100  # updates between two comparisons of all ranks' parameters
TIMEOUT = 300.0  # seconds without an answer after which a rank is taken for dead
TO_START = 120.0  # the same for its first: packages are imported
LOOK = 0.05  # seconds between two looks at who is there
TO_END = 3.0  # seconds to find out which rank it is that is gone
_START = (
    "import json, sys; told = json.loads(sys.argv[1]); sys.path[:], sys.argv = told['path'], told['argv']; "
    "from duetto.learners.rank import main; main()"
)


class Gpu(NamedTuple):
    """Which one it is."""

    machine: str
    uuid: str


class Receipt(NamedTuple):
    """What a rank answers."""

    updates: int
    checksum: int | None = None
    failure: str = ""  # a traceback, where it failed
    gpu: Gpu | None = None  # that it was made on


class GoneError(Exception):
    """A rank will never answer; the end of a sentence that says why."""


class Line(Protocol):
    """The way to one rank. None of its calls but `receive` raises because of what happens to the rank."""

    def send(self, *message: Any) -> None:
        """Ask it something; nobody waits. `message` is of `rank.Rank.do`."""
        ...

    def receive(self, timeout: float) -> Receipt:
        """The answer to the oldest message that has none. GoneError where there will be none; TimeoutError."""
        ...

    def close(self) -> None:
        """End it now."""
        ...


class Machines(Protocol):
    """Where ranks live.

    Attributes:
        host: This machine's address for the others; "" where all ranks are on it.
    """

    host: str

    def start(self, rank: int, made_of: bytes) -> Line:
        """A process that makes a rank's learner: see `rank.Rank`."""
        ...


class Meeting(NamedTuple):
    """Where ranks find each other."""

    address: str  # a file, or the machine of a store that rank 0 keeps ...
    port: int = 0  # ... at this port


class Ranks:
    """All ranks but the first, as rank 0 knows them."""

    def __init__(self, made_of: Sequence[bytes], machines: Machines) -> None:
        """`made_of`, pickled, is of ranks 1, 2, ..., which start now."""
        self.number: int = len(made_of) + 1
        self._lines: dict[int, Line] = {rank: machines.start(rank, own) for rank, own in enumerate(made_of, 1)}

    def begin(self, own: Gpu | None = None) -> None:
        """Wait until all have begun. Raises PartLostError, and UsageError where two have one GPU; rank 0 has `own`."""
        having = {own: 0}
        for rank in self._lines:
            gpu = self._receive(rank, TO_START).gpu
            if gpu is not None and gpu in having:
                raise UsageError(
                    f"Learners {having[gpu]} and {rank} of {self.number} have the same GPU of {gpu.machine}: learner 0 "
                    "is the run's own process, of whose GPU Ray does not know. Start Ray there without that one "
                    "(CUDA_VISIBLE_DEVICES=1,2 ray start ...), or give fewer --learners, or --device cpu."
                )
            having[gpu] = rank

    def send(self, *message: Any) -> None:
        """Ask all the same."""
        for line in self._lines.values():
            line.send(*message)

    def send_each(self, messages: Sequence[tuple[Any, ...]]) -> None:
        """Ask ranks 1, 2, ... something each."""
        for line, message in zip(self._lines.values(), messages, strict=True):
            line.send(*message)

    def receive(self, updates: int, checksum: int | None = None) -> None:
        """Wait for everybody's answer, and compare it with what rank 0 has.

        Raises:
            PartLostError: A rank is gone.
            DuettoError: It has made other updates, or has other parameters.
        """
        for rank in self._lines:
            found = self._receive(rank, TIMEOUT)
            if (found.updates, found.checksum) != (updates, checksum):
                what = "made other updates than" if found.updates != updates else "other parameters than"
                raise DuettoError(
                    f"Learner {rank} of {self.number} has {what} learner 0 after {updates:,} updates, though all "
                    "compute the same: a machine's memory or its packages must differ. Nothing of this is in a "
                    "checkpoint; the run goes on from its last one with: duetto resume RUN."
                )

    def blame(self) -> PartLostError:
        """What to raise where adding up has failed: who is gone. Those that are there have failed in it, too."""
        until, failed = time.monotonic() + TO_END, dict[int, PartLostError]()
        while time.monotonic() < until and len(failed) < len(self._lines):
            for rank in self._lines.keys() - failed.keys():
                try:
                    self._receipt(rank, LOOK)
                except TimeoutError:
                    continue
                except PartLostError as lost:
                    if isinstance(lost.__cause__, GoneError):
                        return lost
                    failed[rank] = lost
        silent = sorted(self._lines.keys() - failed.keys())
        if silent:
            return PartLostError(f"Learner {silent[0]} of {self.number} does not answer.")
        return min(failed.values(), key=lambda lost: "ApartError" in str(lost))

    def close(self) -> None:
        """End all of them."""
        for line in self._lines.values():
            line.close()
        self._lines.clear()

    def _receive(self, rank: int, timeout: float) -> Receipt:
        try:
            return self._receipt(rank, timeout)
        except TimeoutError as error:
            raise PartLostError(f"Learner {rank} of {self.number} has not answered for {timeout:.0f} s.") from error

    def _receipt(self, rank: int, timeout: float) -> Receipt:
        try:
            receipt = self._lines[rank].receive(timeout)
        except GoneError as gone:
            raise PartLostError(f"Learner {rank} of {self.number} {gone}.") from gone
        if receipt.failure:
            last = receipt.failure.strip().splitlines()[-1].rstrip(".")
            lost = PartLostError(f"Learner {rank} of {self.number} failed: {last}.")
            lost.add_note(receipt.failure)
            raise lost
        return receipt


class Process:
    """A rank in a process of this machine. It ends with this one, however that ends."""

    def __init__(self, made_of: bytes) -> None:
        told = json.dumps({"path": sys.path, "argv": sys.argv})
        apart: dict[str, Any] = {"start_new_session": True}  # Ctrl-C on the terminal is for the parent
        if sys.platform == "win32":
            apart = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen([sys.executable, "-c", _START, told], **pipes, **apart)
        self._inbox: queue.Queue[Receipt | None] = queue.Queue()
        self._outbox: queue.Queue[bytes] = queue.Queue()
        threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True).start()
        threading.Thread(target=self._talk, args=(self._process.stdin,), daemon=True).start()
        self.send("make", made_of)

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    def send(self, *message: Any) -> None:
        """See Line. A thread writes it: what is larger than a pipe would wait for a process that was stopped."""
        self._outbox.put(pickle.dumps(message, protocol=5))

    def receive(self, timeout: float) -> Receipt:
        """See Line."""
        try:
            receipt = self._inbox.get(timeout=timeout)
        except queue.Empty:
            raise TimeoutError from None
        if receipt is None:
            self._inbox.put(None)  # for whoever asks again
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(TO_END)
            raise GoneError(f"is gone (its process {_ended(self._process.poll())})")
        return receipt

    def close(self) -> None:
        """See Line."""
        self._process.kill()
        self._process.wait()
        self._outbox.put(b"")

    def _listen(self, stream: IO[bytes]) -> None:
        with stream, suppress(EOFError, OSError, pickle.UnpicklingError):
            while True:
                self._inbox.put(pickle.load(stream))
        self._inbox.put(None)

    def _talk(self, stream: IO[bytes]) -> None:
        with suppress(OSError), stream:  # where nobody reads it, `receive` says so
            while message := self._outbox.get():
                stream.write(message)
                stream.flush()


def _ended(code: int | None) -> str:
    if code is None:
        return "says nothing any more"
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"


class ThisMachine:
    """See Machines."""

    host = ""

    def start(self, rank: int, made_of: bytes) -> Process:
        """See Machines."""
        return Process(made_of)


def packed(what: Any) -> bytes:
    """The same for another process. UsageError where it cannot go there."""
    try:
        return cloudpickle.dumps(what)
    except Exception as error:  # of any kind, from the user's own objects
        raise UsageError(
            f"The algorithm cannot be sent to the other learners' processes ({error}). Leave out learners "
            "(--learners), or define its networks in a module."
        ) from error
