"""Several learners of one run: who they are, what they are asked, and what they answer.

    the run    its own process: draws all random numbers, deals the shares, writes checkpoints
    rank r     a process that has the same parameters and optimisers, and a share of every batch

In PyTorch the run is rank 0 as well (`torch_ranks`):

    rank 0   | deal | loss, gradient |          | step |          | loss ...
    rank 1          | loss, gradient | averaged | step | receipt |

JAX ends a process where one that it computes with is gone, so there the run is none of them (`remote`, `jax_share`):

    the run  | deal |                                  | deal ...
    rank 0          | loss, gradient |          | step | receipt, metrics |
    rank 1          | loss, gradient | averaged | step | receipt          |

What a rank is asked is a message, and each gets one answer, a receipt: the number of updates made and, now and then, a
checksum of all that learning changes. Equal numbers into equal programs give equal bits, so two checksums that differ
are an error. A rank that is gone takes its parameters along, but all others have the same: the run is taken up from its
newest checkpoint (`PartLostError`), and nothing is made of what is left.
"""

from __future__ import annotations

import pickle
import queue
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any, NamedTuple, Protocol

import cloudpickle

from duetto import another_python
from duetto.errors import DuettoError, PartLostError, UsageError

CHECKED_EVERY = 100  # updates between two comparisons of all ranks' parameters
TIMEOUT = 300.0  # seconds without an answer after which a rank is taken for dead
TO_START = 120.0  # the same for its first: packages are imported
LOOK = 0.05  # seconds between two looks at who is there
TO_END = 3.0  # seconds to find out which rank it is that is gone
_START = "from duetto.learners.rank import main; main()"


class Gpu(NamedTuple):
    """The identity of a GPU."""

    machine: str
    uuid: str


class Receipt(NamedTuple):
    """A rank's answer to one message."""

    updates: int
    checksum: int | None = None
    failure: str = ""  # a traceback, where it failed
    gpu: Gpu | None = None  # that it was made on
    value: Any = None  # what it was asked for
    told: DuettoError | None = None  # what is the user's to mend, where that failed


class ApartError(Exception):
    """Ranks could not add up what they have: one of them is gone."""


class GoneError(Exception):
    """A rank will never answer; the message is the end of a sentence that says why."""


class Line(Protocol):
    """A connection to one rank. None of its calls but `receive` raises because of what happens to the rank."""

    def send(self, *message: Any) -> None:
        """Ask the rank something, without waiting. `message` are the arguments of `rank.Rank.do`."""
        ...

    def receive(self, timeout: float) -> Receipt:
        """The answer to the oldest open message. Raises GoneError where none will come, TimeoutError where none has."""
        ...

    def close(self) -> None:
        """End the rank now."""
        ...


class Machines(Protocol):
    """The machines that ranks run on.

    Attributes:
        host: This machine's address for the others; "" where all ranks are on it.
    """

    host: str

    def start(self, rank: int, made_of: bytes) -> Line:
        """Start a process that makes a rank's learner, see `rank.Rank`; return the line to it."""
        ...


class Meeting(NamedTuple):
    """The place where ranks find each other."""

    address: str  # a file, or the machine of a store or service that rank 0 keeps ...
    port: int = 0  # ... at this port


@contextmanager
def beginning(number: int, close: Callable[[], None]) -> Iterator[None]:
    """Start `number` learners inside. On an error `close` ends the others; PartLostError then says that they could not
    begin.
    """
    try:
        yield
    except BaseException as error:
        close()
        if isinstance(error, PartLostError):
            raise PartLostError(f"The {number} learners could not begin. {error}") from error
        raise


class Ranks:
    """The ranks in processes of their own, as the run knows them."""

    def __init__(self, made_of: Sequence[bytes], machines: Machines, first: int = 1) -> None:
        """Start ranks `first`, `first` + 1, ..., from `made_of`, pickled; the run itself is any rank before them."""
        self.number: int = first + len(made_of)
        self._lines: dict[int, Line] = {}
        try:
            for rank, own in enumerate(made_of, first):
                self._lines[rank] = machines.start(rank, own)
        except BaseException:
            self.close()
            raise

    def begin(self, own: Gpu | None = None) -> None:
        """Wait until all have begun; `own` is rank 0's GPU. Raises PartLostError, and UsageError where two share
        one.
        """
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
        """Send all ranks the same message."""
        for line in self._lines.values():
            line.send(*message)

    def send_each(self, messages: Sequence[tuple[Any, ...]]) -> None:
        """Send each rank a message of its own, in their order."""
        for line, message in zip(self._lines.values(), messages, strict=True):
            line.send(*message)

    def receive(self, updates: int, checksum: int | None = None) -> None:
        """Wait for every rank's answer, and compare it with what rank 0 has, which is the run.

        Raises:
            PartLostError: A rank is gone.
            DuettoError: A rank has made other updates, or has other parameters.
        """
        for rank in self._lines:
            self._compare(rank, self._receive(rank, TIMEOUT), updates, checksum)

    def gather(self, updates: int, timeout: float | None = None) -> list[Any]:
        """Wait for every rank's answer, compare it with rank 0's, which is one of them, and return what each was asked
        for.

        A rank that waits for others that are gone never answers, so all are looked at in turn. Raises what `receive`
        does, and the user's error where a rank refuses its message.
        """
        timeout = timeout or TIMEOUT
        found, until, told = dict[int, Receipt](), time.monotonic() + timeout, list[DuettoError]()
        while waiting := [rank for rank in self._lines if rank not in found]:
            for rank in waiting:
                try:
                    found[rank] = self._receipt(rank, LOOK)
                except TimeoutError:
                    if time.monotonic() > until:
                        raise PartLostError(f"{self._some(waiting)} not answer for {timeout:.0f} s.") from None
                except PartLostError as lost:
                    raise self.blame({rank: lost}, found) from lost
                except DuettoError as error:
                    found[rank] = Receipt(-1)
                    told.append(error)
        if told:
            raise told[0]
        for rank, receipt in found.items():
            self._compare(rank, receipt, updates, found[0].checksum)
        return [found[rank].value for rank in self._lines]

    def ask(self, rank: int, *message: Any) -> Any:
        """The answer of one rank alone. Raises PartLostError."""
        self._lines[rank].send(*message)
        return self._receive(rank, TIMEOUT).value

    def _compare(self, rank: int, found: Receipt, updates: int, checksum: int | None) -> None:
        if (found.updates, found.checksum) != (updates, checksum):
            what = "made other updates than" if found.updates != updates else "other parameters than"
            raise DuettoError(
                f"Learner {rank} of {self.number} has {what} learner 0 after {updates:,} updates, though all "
                "compute the same: a machine's memory or its packages must differ. Nothing of this is in a "
                "checkpoint; the run goes on from its last one with: duetto resume RUN."
            )

    def blame(self, known: Mapping[int, PartLostError] | None = None, well: Collection[int] = ()) -> PartLostError:
        """The error to raise where adding up has failed: it says who is gone. Ranks that are there have failed in it,
        too.

        `known` have failed already, and `well` have answered. Where JAX's rank 0 is gone all others end as well.
        """
        until, failed = time.monotonic() + TO_END, dict(known or {})
        while True:
            for rank in sorted(self._lines.keys() - failed.keys() - set(well)):
                with suppress(TimeoutError):
                    try:
                        self._receipt(rank, LOOK)
                    except PartLostError as lost:
                        failed[rank] = lost
            for rank in sorted(failed):
                if isinstance(failed[rank].__cause__, GoneError) or ApartError.__name__ not in str(failed[rank]):
                    return failed[rank]
            silent = sorted(self._lines.keys() - failed.keys() - set(well))
            if not silent:
                return failed[min(failed)]
            if time.monotonic() > until:
                return PartLostError(f"{self._some(silent)} not answer.")

    def _some(self, ranks: Sequence[int]) -> str:
        """The beginning of a sentence about these ranks."""
        if len(ranks) == 1:
            return f"Learner {ranks[0]} of {self.number} does"
        return f"Learners {', '.join(map(str, ranks))} of {self.number} do"

    def close(self) -> None:
        """End all ranks; rank 0 last, because JAX's others need it."""
        for line in reversed(self._lines.values()):
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
        if receipt.told is not None:
            raise receipt.told
        if receipt.failure:
            last = receipt.failure.strip().splitlines()[-1].rstrip(".")
            lost = PartLostError(f"Learner {rank} of {self.number} failed: {last}.")
            lost.add_note(receipt.failure)
            raise lost
        return receipt


class Process:
    """A rank in a process of this machine. It ends with this one, however that ends."""

    def __init__(self, made_of: bytes) -> None:
        self._process = another_python.begin(_START, subprocess.PIPE, subprocess.PIPE)
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
        try:
            with stream, suppress(EOFError, OSError, pickle.UnpicklingError):
                while True:
                    self._inbox.put(pickle.load(stream))
        finally:  # whatever could not be read: nothing more comes
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


def own_address(host: str) -> str:
    """The address at which the machine `host` reaches this process; "" is this machine."""
    if not host:
        return "127.0.0.1"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as towards:
        towards.connect((host, 9))  # nothing is sent
        return towards.getsockname()[0]


def packed(what: Any) -> bytes:
    """An object pickled for another process. Raises UsageError where it cannot be pickled."""
    try:
        return cloudpickle.dumps(what)
    except Exception as error:  # of any kind, from the user's own objects
        raise UsageError(
            f"The algorithm cannot be sent to the other learners' processes ({error}). Leave out learners "
            "(--learners), or define its networks in a module."
        ) from error
