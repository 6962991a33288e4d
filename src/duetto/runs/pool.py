"""The pool that trains runs in processes of this machine."""

from __future__ import annotations

import os
import queue
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from duetto import subprocess_python
from duetto.cpu import cores
from duetto.errors import DuettoError
from duetto.learners.runtime import OMP_THREADS
from duetto.runs.worker import SHARED, Job, Message, encode, pack, receive, send
from duetto.storage import safe_open

LAST_MESSAGES_SECONDS = 2.0  # for the messages of a process that has ended


class ProcessPool:
    """Processes of this machine. Each has its share of the cores, and trains as `duetto train` does."""

    def __init__(self, jobs: int, log_of: Callable[[Job], Path], runs_per_process: int = 1) -> None:
        """Make a pool of `jobs` processes that work at a time.

        Args:
            jobs: How many jobs work at a time.
            log_of: The file for the output of a process, by its first job.
            runs_per_process: After so many runs a process ends, so that leaked memory does not add up.
        """
        self._jobs, self._log_of, self._runs_per_process = jobs, log_of, runs_per_process
        self._inbox: queue.Queue[tuple[WorkerProcess, Message]] = queue.Queue()
        self._jobs_of: dict[WorkerProcess, Job] = {}
        self._idle: list[WorkerProcess] = []

    def room(self) -> bool:
        """Return whether one more job may work."""
        return len(self._jobs_of) < self._jobs

    def start(self, job: Job) -> None:
        """Start to train a job, or resume it. UsageError if it cannot be sent to another process."""
        threads = max(1, cores() // self._jobs)
        process = self._idle.pop() if self._idle else WorkerProcess(self._inbox, self._log_of(job), threads)
        self._jobs_of[process] = job
        process.train(job)

    def go(self, job: Job) -> None:
        """Let a job that waits continue after its evaluation."""
        self._process_of(job).go()

    def stop(self, job: Job) -> None:
        """Let a job end, with a checkpoint; it sends one more message."""
        self._process_of(job).stop()

    def wait(self, seconds: float) -> list[tuple[Job, Message]]:
        """Wait for a message of a job, and return it; [] if none comes in time.

        They are those of `runs.worker`, and ("gone", exit code) if the process died. All but "started" and "evaluated"
        end the job.
        """
        try:
            process, message = self._inbox.get(timeout=seconds)
        except queue.Empty:
            return []
        job = self._jobs_of.get(process)
        if job is None:  # its job has ended
            if process in self._idle:
                self._idle.remove(process)
                process.close()
            return []
        if message[0] not in ("started", "evaluated"):
            del self._jobs_of[process]
            if message[0] != "gone" and process.runs < self._runs_per_process:
                self._idle.append(process)
            else:
                process.close()
        return [(job, message)]

    def close(self) -> None:
        """End the pool; kill the processes that still train."""
        for process in self._jobs_of:
            process.kill()
        for process in self._idle:
            process.close()

    def _process_of(self, job: Job) -> WorkerProcess:
        return next(process for process, its_job in self._jobs_of.items() if its_job is job)


class WorkerProcess:
    """A process of `runs.worker`. Its messages go to `inbox`, each paired with it; the last one is "gone".

    Attributes:
        runs: How many jobs it got.
    """

    def __init__(
        self, inbox: queue.Queue[tuple[WorkerProcess, Message]], log: Path, threads: int | None = None
    ) -> None:
        """Start it. `log` gets what its environments print; `threads` is its share of the cores.

        Raises DuettoError if the log cannot be written.
        """
        environ = SHARED | ({} if threads is None else {OMP_THREADS: str(threads)}) | os.environ
        with _opened(log) as output:
            program, pipe = "from duetto.runs.worker import main; main()", subprocess.PIPE
            self._process = subprocess_python.start(program, pipe, pipe, output, environ)
        self.runs: int = 0
        self._inbox = inbox
        self._thread = threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True)
        self._thread.start()
        threading.Thread(target=self._watch, daemon=True).start()

    def train(self, job: Job) -> None:
        """Start a run, or resume it. UsageError if its environment cannot be sent to another process."""
        self.runs += 1
        self._send("train", encode(pack(job)))

    def go(self) -> None:
        """Let the run continue after an evaluation."""
        self._send("go")

    def stop(self) -> None:
        """Let the run end, with a checkpoint."""
        self._send("stop")

    def close(self) -> None:
        """End the idle process."""
        with suppress(OSError):
            self._process.stdin.close()  # type: ignore[union-attr]
        self._process.wait()
        self._thread.join(LAST_MESSAGES_SECONDS)

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()
        self.close()

    def _send(self, *message: Any) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):  # "gone" follows
            send(self._process.stdin, message)  # type: ignore[arg-type]

    def _listen(self, stream: IO[bytes]) -> None:
        with stream:  # children of the process may hold the pipe open for longer than `close` waits
            while (message := receive(stream)) is not None:  # type: ignore[arg-type]
                self._inbox.put((self, message))

    def _watch(self) -> None:
        """Put "gone" into the inbox after the process's last messages.

        It does not wait for the pipe's end: children of the process may outlive it and hold the pipe open.
        """
        code = self._process.wait()
        self._thread.join(LAST_MESSAGES_SECONDS)
        self._inbox.put((self, ("gone", code)))


def _opened(log: Path) -> IO[bytes]:
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        return os.fdopen(safe_open.open_file(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab")
    except OSError as error:
        raise DuettoError(f"{log} cannot be written: {error.strerror}. Fix that; the same call continues.") from error
