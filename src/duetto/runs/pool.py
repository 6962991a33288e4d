"""The pool that trains runs in processes of this machine."""

from __future__ import annotations

import os
from contextlib import suppress
from multiprocessing import Pipe, connection
from pathlib import Path
from typing import IO

from duetto import subprocess_python
from duetto.cpu import cores
from duetto.errors import DuettoError
from duetto.learners.runtime import OMP_THREADS
from duetto.runs.worker import SHARED, Job, Message, pack
from duetto.storage import safe_open


class ProcessPool:
    """Processes of this machine. Each has its share of the cores, and trains as `duetto train` does."""

    def __init__(self, jobs: int, runs_per_process: int = 1) -> None:
        """Make a pool of `jobs` processes that work at a time.

        Args:
            jobs: How many jobs work at a time.
            runs_per_process: After so many runs a process ends, so that leaked memory does not add up.
        """
        self._jobs, self._runs_per_process = jobs, runs_per_process
        self._working: dict[Job, WorkerProcess] = {}
        self._idle: list[WorkerProcess] = []

    def room(self) -> bool:
        """Return whether one more job may work."""
        return len(self._working) < self._jobs

    def start(self, job: Job) -> None:
        """Start to train a job, or resume it. UsageError if it cannot be sent to another process."""
        self._idle = [process for process in self._idle if process.receive() is None]  # the others have died
        process = self._idle.pop() if self._idle else WorkerProcess(job.log, max(1, cores() // self._jobs))
        self._working[job] = process
        process.train(job)

    def go(self, job: Job) -> None:
        """Let a job that waits continue after its evaluation."""
        self._working[job].send("go")

    def stop(self, job: Job) -> None:
        """Let a job end, with a checkpoint; it sends one more message."""
        self._working[job].send("stop")

    def wait(self, seconds: float) -> list[tuple[Job, Message]]:
        """Wait for messages of jobs, and return at most one of each; [] if none comes in time.

        They are those of `runs.worker`, and ("gone", exit code) if the process died. All but "started" and "evaluated"
        end the job.
        """
        connection.wait([process.connection for process in self._working.values()], seconds)
        received: list[tuple[Job, Message]] = []
        for job, process in list(self._working.items()):
            if (message := process.receive()) is None:
                continue
            received.append((job, message))
            if message[0] not in ("started", "evaluated"):
                del self._working[job]
                if message[0] != "gone" and process.runs < self._runs_per_process:
                    self._idle.append(process)
                else:
                    process.close()
        return received

    def close(self) -> None:
        """End the pool; kill the processes that still train."""
        for process in [*self._working.values(), *self._idle]:
            process.kill()


class WorkerProcess:
    """A process of `runs.worker`.

    Attributes:
        connection: To the process.
        runs: How many jobs it got.
    """

    def __init__(self, log: Path, threads: int) -> None:
        """Start it. `log` gets what its environments print; `threads` is its share of the cores.

        Raises DuettoError if the log cannot be written.
        """
        ours, theirs = Pipe()
        self.connection: connection.Connection = ours
        with theirs, _opened(log) as output:
            program = "from duetto.runs.worker import main; main()"
            environ = SHARED | {OMP_THREADS: str(threads)} | os.environ
            self._process = subprocess_python.start(program, theirs.fileno(), output, output, environ)
        self.runs: int = 0

    def train(self, job: Job) -> None:
        """Start a run, or resume it. UsageError if its environment cannot be sent to another process."""
        self.runs += 1
        self.send("train", pack(job))

    def send(self, *message: str | bytes) -> None:
        """Send a message; nothing is sent to a dead process."""
        with suppress(OSError):
            self.connection.send(message)

    def receive(self) -> Message | None:
        """Return the next message, if there is one; ("gone", exit code) after the last one of a dead process.

        It does not wait for the end of the stream: children of the process may outlive it and hold that open.
        """
        code = self._process.poll()  # first, as the last message may come before the end
        try:
            if self.connection.poll():
                return self.connection.recv()
        except (EOFError, OSError):
            code = self._process.wait()
        return None if code is None else ("gone", code)

    def close(self) -> None:
        """End the idle process."""
        self.connection.close()
        self._process.wait()

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()
        self.close()


def _opened(log: Path) -> IO[bytes]:
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        return os.fdopen(safe_open.open_file(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab")
    except OSError as error:
        raise DuettoError(f"{log} cannot be written: {error.strerror}. Fix that; the same call continues.") from error
