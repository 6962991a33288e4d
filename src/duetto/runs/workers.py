"""The parent's side of the processes that train."""

from __future__ import annotations

import base64
import os
import queue
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import cloudpickle

from duetto import subprocess_python
from duetto.errors import DuettoError, UsageError
from duetto.learners.runtime import OMP_THREADS
from duetto.runs.job import Job
from duetto.runs.worker import receive, send
from duetto.storage import safe_open

SHARED = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}  # processes share a GPU: none may take most of its memory at once
LAST_WORDS = 2.0  # seconds until a process that has ended has said all


class WorkerProcess:
    """A process that trains. Its messages go to `inbox`, each paired with it; the last one is "gone"."""

    def __init__(
        self, inbox: queue.Queue[tuple[WorkerProcess, tuple[Any, ...]]], log: Path, threads: int | None = None
    ) -> None:
        """Start it. `log` takes what its environments print; `threads` is its share of the cores, if given.

        Raises DuettoError if the log cannot be written.
        """
        environ = SHARED | ({} if threads is None else {OMP_THREADS: str(threads)}) | os.environ
        with _opened(log) as words:
            start, pipe = "from duetto.runs.worker import main; main()", subprocess.PIPE
            self._process = subprocess_python.begin(start, pipe, pipe, words, environ)
        self.runs: int = 0
        self._inbox = inbox
        self._thread = threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True)
        self._thread.start()
        threading.Thread(target=self._watch, daemon=True).start()

    def train(self, job: Job) -> None:
        """Begin a run, or resume it.

        Raises:
            UsageError: The environment cannot be sent to another process.
        """
        self.runs += 1
        self._send("train", base64.b64encode(packed(job)).decode())

    def go(self) -> None:
        """Let the run go on after an evaluation."""
        self._send("go")

    def stop(self) -> None:
        """Let the run end, with a checkpoint."""
        self._send("stop")

    def close(self) -> None:
        """Let the process end, which has no run now."""
        with suppress(OSError):
            self._process.stdin.close()  # type: ignore[union-attr]
        self._process.wait()
        self._thread.join(LAST_WORDS)

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()
        self.close()

    def _send(self, *message: Any) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):  # "gone" says it
            send(self._process.stdin, message)  # type: ignore[arg-type]

    def _listen(self, stream: IO[bytes]) -> None:
        with stream:  # its owner: what its process began may hold the pipe open for longer than `close` waits
            while (message := receive(stream)) is not None:  # type: ignore[arg-type]
                self._inbox.put((self, tuple(message)))

    def _watch(self) -> None:
        """Put "gone" into the inbox after the process's last messages; it does not wait for the pipe's end, since the
        process's own children may outlive it and hold the pipe open.
        """
        code = self._process.wait()
        self._thread.join(LAST_WORDS)
        self._inbox.put((self, ("gone", code)))


def _opened(log: Path) -> IO[bytes]:
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        return os.fdopen(safe_open.open_file(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab")
    except OSError as error:
        raise DuettoError(
            f"{log} cannot be written: {error.strerror}. Put that right; the same call goes on."
        ) from error


def packed(job: Job) -> bytes:
    """The pickled job, for another process. UsageError if its environment cannot be sent there."""
    try:
        return cloudpickle.dumps(job)
    except Exception as error:  # of any kind, from the user's own objects
        raise UsageError(
            f"The environment cannot be sent to the processes that train ({error}). Hand over an id, or a function "
            "that makes environments."
        ) from error
