"""Runs in other processes: jobs, the pool that hands them out, and the worker that trains them one after another.

    a worker receives  ("train", packed job) | ("go",) | ("stop",)       it exits at the end of the stream
    a worker sends     ("started", evaluations so far, step) | ("evaluated", step, mean return)
                       | ("ended", stopped, notices) | ("failed", kind, sentence, traceback)

A worker is connected to its pool by its stdin; the output of environments goes to the pool's log.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import threading
import traceback
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from multiprocessing import Pipe, connection
from pathlib import Path
from typing import IO, Any

import cloudpickle

from duetto import environments, subprocess_python, trackers
from duetto.cpu import cores
from duetto.errors import DuettoError, EnvironmentFailedError, NonFiniteError, RunInUseError, UsageError
from duetto.learners.runtime import OMP_THREADS
from duetto.runs.run import run_of, start
from duetto.runs.spec import RunSpec
from duetto.storage import safe_open, user_code
from duetto.storage.config import Config
from duetto.storage.logs import Csv
from duetto.storage.reproducibility import HinderedError, check_same_run
from duetto.storage.run_folder import clear, folder_lock, foreign
from duetto.training.callbacks import AnyCallback, Callback
from duetto.training.trainer import Trainer

CLAIMS = ".beginning"  # the folder with the locks of runs that are being started
SHARED = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}  # processes share a GPU: none may take most of its memory at once
DIVERGED, FAILED = "diverged", "failed"
HINDERED, IN_USE = "hindered", "in use"  # by something outside the run, which can continue

Message = tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Job:
    """A run for another process, which starts it, or resumes it if its folder exists."""

    spec: RunSpec  # with a name, and without "auto"
    config: Config  # of the spec, when the job was made
    log: Path  # the file for the output of its process; of a process with several jobs, the first one's
    track: tuple[str, ...] = ()  # names of trackers
    waits: bool = False  # after each evaluation, until the pool lets it continue
    is_contested: bool = False  # other processes may start the same run at the same time

    @property
    def name(self) -> str:
        """The name of the run's folder."""
        return self.spec.folder_name

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return Path(self.spec.runs_dir) / self.name

    def work(self, callbacks: Sequence[AnyCallback]) -> None:
        """Train to the end.

        Raises as `duetto.train` does; RunInUseError if another process works on the run; HinderedError if its folder
        has a run of other options, or a file that it is made of was edited since the job was made.
        """
        spec = self._unedited_spec()
        callbacks = [*callbacks, *trackers.callbacks(self.track)]
        claim = Path(spec.runs_dir) / CLAIMS / self.name
        if self.is_contested:
            claim.mkdir(parents=True, exist_ok=True)
        with folder_lock(claim) if self.is_contested else nullcontext():
            if (self.folder / "config.yaml").is_file():
                check_same_run(self.folder, self.config)
                run_of(spec, self.folder, self.config).resume_with(callbacks)
                return
            if not foreign(self.folder):
                clear(self.folder)
            if os.path.lexists(self.folder):
                raise HinderedError(f"{self.folder} is no run: it has no config.yaml. Put that back, or move it away.")
            start(spec, callbacks)

    def _unedited_spec(self) -> RunSpec:
        """Return the spec with its algorithm made from its file again. HinderedError if a file was edited."""
        spec, origin = self.spec, self.spec.origin
        files = {self.config.environment: self.config.checksum}
        if origin is not None:
            files[f"{origin.file}:{origin.kind}"] = origin.checksum
        for name, checksum in files.items():
            if checksum and user_code.checksum(name) != checksum:
                raise HinderedError(
                    f"{name} was edited while runs of it wait for their turn: this one would be of other code than "
                    "those before it. Put the file back, and give the same command again; or start all runs anew, "
                    "with another --output."
                )
        if origin is None:
            return spec
        kind, origin = user_code.named(f"{origin.file}:{origin.kind}")
        options = {option: getattr(spec.algorithm, option) for option in kind.options()}
        return replace(spec, algorithm=kind(**options), origin=origin)


def pack(job: Job) -> bytes:
    """Pickle a job for another process. UsageError if its environment cannot be sent there."""
    try:
        return cloudpickle.dumps((job, environments.registration(job.spec.environment)))
    except Exception as error:  # of any kind, from the user's own objects
        raise UsageError(
            f"The environment cannot be sent to the processes that train ({error}). Pass an id, or a function that "
            "makes environments."
        ) from error


# ---------------------------------------------------------------------------------------------------- the pool
class ProcessPool:
    """Processes on this machine that train as `duetto train` does, each with its share of the cores."""

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
        """Start or resume a job. Raises UsageError if it cannot be sent to another process."""
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

        They are those of a worker, and ("gone", exit code) if the process died. All but "started" and "evaluated"
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
    """A process that runs `main`.

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
            program = "from duetto.runs.pool import main; main()"
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

        It does not wait for the end of the stream: the process's children may outlive it and keep the stream open.
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


# ---------------------------------------------------------------------------------------------------- a worker
def main() -> None:
    """Train jobs until the pool is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the pool's process handles Ctrl-C
    pool = connection.Connection(os.dup(0))
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    Worker(pool).serve()


class Newest(Callback):
    """Keep the newest trainer: a run that continues after it lost a part of itself has another one."""

    trainer: Trainer | None = None

    def on_start(self, trainer: Trainer) -> None:
        """Keep the trainer."""
        self.trainer = trainer


def outcome(job: Job, newest: Newest | None = None) -> Message:
    """Train, and return the last message: "ended", or "failed" as DIVERGED, FAILED, HINDERED or IN_USE."""
    newest = newest or Newest()
    try:
        job.work([newest])
        assert newest.trainer is not None
        return "ended", newest.trainer.stopped, list(newest.trainer.notices)
    except EnvironmentFailedError as error:
        return "failed", FAILED, error.sentence, error.trace
    except DuettoError as error:
        return "failed", _fault(error), str(error), ""
    except Exception as error:  # of one run, which is no reason to end the others
        return "failed", _fault(error), f"{type(error).__name__}: {error}", traceback.format_exc()


class Worker(Newest):
    """The worker's side of the connection, and a callback of the runs that it trains."""

    def __init__(self, pool: connection.Connection) -> None:
        self._pool = pool
        self._jobs: queue.Queue[bytes] = queue.Queue()
        self._go: queue.Queue[bool] = queue.Queue()
        self._stopped = threading.Event()
        self._job: Job | None = None
        threading.Thread(target=self._listen, daemon=True).start()

    def serve(self) -> None:
        """Train one job after another."""
        while True:
            self.trainer: Trainer | None = None
            job, registration = pickle.loads(self._jobs.get())
            environments.register(registration)
            self._job = job
            self._send(*outcome(job, self))

    def _listen(self) -> None:
        try:
            while True:
                kind, *job = self._pool.recv()
                if kind == "train":
                    self._stopped.clear()
                    self._go = queue.Queue()
                    self._jobs.put(job[0])
                elif kind == "go":
                    self._go.put(True)
                else:
                    self._stopped.set()
                    if self.trainer is not None:
                        self.trainer.stop()
                    self._go.put(False)
        except (EOFError, OSError):
            os._exit(1)  # its run resumes from its last checkpoint, as after kill -9

    def _send(self, *message: Any) -> None:
        try:
            self._pool.send(message)
        except OSError:
            os._exit(1)

    def on_start(self, trainer: Trainer) -> None:
        """Send the evaluations so far and the step."""
        super().on_start(trainer)
        if self._stopped.is_set():
            trainer.stop()
        rows = Csv.read(trainer.folder / "evaluations.csv")
        self._send("started", [(int(float(row["step"])), float(row["mean_return"])) for row in rows], trainer.step)

    def on_evaluation(self, trainer: Trainer) -> None:
        """Send the evaluation of a job that waits, and wait for the pool's answer."""
        assert self._job is not None
        assert trainer.last_evaluation is not None
        step, result = trainer.last_evaluation
        if self._job.waits and step and not self._stopped.is_set():
            self._send("evaluated", step, result.mean_return)
            if not self._go.get():
                trainer.stop()


def _fault(error: BaseException | None) -> str:
    """Return HINDERED if the cause is the machine, such as a full disk, or something that was edited."""
    if isinstance(error, NonFiniteError):
        return DIVERGED
    if isinstance(error, RunInUseError):
        return IN_USE
    while error is not None and not isinstance(error, EnvironmentFailedError):
        if isinstance(error, OSError | HinderedError):
            return HINDERED
        error = error.__cause__
    return FAILED
