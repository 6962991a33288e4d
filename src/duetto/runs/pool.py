"""Train runs in other processes: jobs, a pool of worker processes, and the worker, which trains one job after another.

    a worker receives  ("train", packed job) | ("go",) | ("stop",)       it exits when the connection is closed
    a worker sends     ("started", evaluations so far, step) | ("evaluated", step, mean return)
                       | ("ended", stopped, notices) | ("failed", kind, sentence, traceback)

The connection is the worker's stdin. Its stdout and stderr, to which environments may print, go to the job's log.
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
SHARED = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}  # processes share a GPU, so none may reserve most of its memory
DIVERGED, FAILED = "diverged", "failed"
HINDERED, IN_USE = "hindered", "in use"  # causes outside the run, which can continue once they are gone

Message = tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Job:
    """A run to train in another process: a new run, or the unfinished run in its folder."""

    spec: RunSpec  # has a name, and no option is "auto"
    config: Config  # the spec's config when the job was made
    log: Path  # the file for the process's output, if this is the process's first job
    track: tuple[str, ...] = ()  # names of trackers
    waits: bool = False  # whether it waits after each evaluation until the pool lets it continue
    is_contested: bool = False  # whether other processes may start the same run at the same time

    @property
    def name(self) -> str:
        """The name of the run's folder."""
        return self.spec.folder_name

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return Path(self.spec.runs_dir) / self.name

    def work(self, callbacks: Sequence[AnyCallback]) -> None:
        """Start or resume the run, and train to the end.

        Raises the errors of `duetto.train`, and RunInUseError if another process trains this run. Raises HinderedError
        if the folder contains a run with other options or files that are not a run's, or if the file of the environment
        or algorithm was edited since the job was made.
        """
        spec = self._unedited_spec()
        callbacks = [*callbacks, *trackers.callbacks(self.track)]
        claim = Path(spec.runs_dir) / CLAIMS / self.name
        if self.is_contested:
            claim.mkdir(parents=True, exist_ok=True)
        with folder_lock(claim) if self.is_contested else nullcontext():
            if (self.folder / "config.yaml").is_file():
                check_same_run(self.folder, self.config)
                run_of(spec, self.folder, self.config, trust=self.config.lacks_signature).resume_with(callbacks)
                return
            if not foreign(self.folder):
                clear(self.folder)
            if os.path.lexists(self.folder):
                raise HinderedError(
                    f"{self.folder} is no run: it has no config.yaml. Restore that file, or move the folder away."
                )
            start(spec, callbacks)

    def _unedited_spec(self) -> RunSpec:
        """Return the spec; load a custom algorithm again from its file. Raises HinderedError for an edited file."""
        spec, origin = self.spec, self.spec.origin
        files = {self.config.environment: self.config.checksum}
        if origin is not None:
            files[f"{origin.file}:{origin.kind}"] = origin.checksum
        for name, checksum in files.items():
            if checksum and user_code.checksum(name) != checksum:
                raise HinderedError(
                    f"{name} was edited while runs that use it were waiting, so this run would use other code than the "
                    "earlier ones. Restore the file and repeat the command; or start all runs again with another "
                    "--output."
                )
        if origin is None:
            return spec
        kind, origin = user_code.named(f"{origin.file}:{origin.kind}")
        options = {option: getattr(spec.algorithm, option) for option in kind.options()}
        return replace(spec, algorithm=kind(**options), origin=origin)


def pack(job: Job) -> bytes:
    """Pickle a job for another process. Raises UsageError if a part cannot be pickled."""
    try:
        return cloudpickle.dumps((job, environments.registration(job.spec.environment)))
    except Exception as error:  # the user's objects may raise an error of any type
        raise UsageError(
            f"The environment cannot be sent to the processes that train ({error}). Pass an id, or a function that "
            "makes environments."
        ) from error


# ---------------------------------------------------------------------------------------------------- the pool
class ProcessPool:
    """Processes on this machine that train as `duetto train` does."""

    def __init__(self, jobs: int, runs_per_process: int = 1) -> None:
        """Make a pool that trains up to `jobs` jobs at the same time.

        Args:
            jobs: Maximum number of jobs at the same time.
            runs_per_process: A process ends after this number of runs, so that leaked memory does not add up.
        """
        self._jobs, self._runs_per_process = jobs, runs_per_process
        self._working: dict[Job, WorkerProcess] = {}
        self._idle: list[WorkerProcess] = []

    def room(self) -> bool:
        """Return whether one more job may start."""
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
        """Tell a job to write a checkpoint and end; it sends one more message."""
        self._working[job].send("stop")

    def wait(self, seconds: float) -> list[tuple[Job, Message]]:
        """Wait for messages of jobs, and return at most one per job; [] if none comes in time.

        A message comes from the worker, or is ("gone", exit code) if the process died. Every message except "started"
        and "evaluated" ends the job.
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
    """A process of the pool, which runs `main` of this file.

    Attributes:
        connection: The connection to the process.
        runs: The number of jobs that it got.
    """

    def __init__(self, log: Path, threads: int) -> None:
        """Start the process. `log` gets the output of its environments; NumPy uses `threads` threads.

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
        """Send a job, whose run the process starts or resumes. Raises UsageError if it cannot be pickled."""
        self.runs += 1
        self.send("train", pack(job))

    def send(self, *message: str | bytes) -> None:
        """Send a message, unless the process is dead."""
        with suppress(OSError):
            self.connection.send(message)

    def receive(self) -> Message | None:
        """Return the next message, or None; return ("gone", exit code) after the last message of a dead process.

        This does not wait for the end of the stream, because the process's children may outlive it and keep the stream
        open.
        """
        code = self._process.poll()  # first, since a process sends its last message before it ends
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


class LatestTrainer(Callback):
    """A callback that keeps the run's latest trainer. After the loss of a replay shard, a run makes a new trainer."""

    trainer: Trainer | None = None

    def on_start(self, trainer: Trainer) -> None:
        """Keep the trainer."""
        self.trainer = trainer


def outcome(job: Job, latest: LatestTrainer | None = None) -> Message:
    """Train, and return the worker's last message: ("ended", ...) or ("failed", kind, ...).

    `kind` is DIVERGED, FAILED, HINDERED or IN_USE.
    """
    latest = latest or LatestTrainer()
    try:
        job.work([latest])
        assert latest.trainer is not None
        return "ended", latest.trainer.stopped, list(latest.trainer.notices)
    except EnvironmentFailedError as error:
        return "failed", FAILED, error.sentence, error.trace
    except DuettoError as error:
        return "failed", _fault(error), str(error), ""
    except Exception as error:  # an error of one run must not end the others
        return "failed", _fault(error), f"{type(error).__name__}: {error}", traceback.format_exc()


class Worker(LatestTrainer):
    """Receives jobs from the pool and trains them. As a callback of each run, it sends messages to the pool."""

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
        self._send("started", [(int(row["step"]), row["mean_return"]) for row in rows], trainer.step)

    def on_evaluation(self, trainer: Trainer) -> None:
        """If the job waits after evaluations, send the result, and wait for the pool's answer."""
        assert self._job is not None
        assert trainer.last_evaluation is not None
        step, result = trainer.last_evaluation
        if self._job.waits and step and not self._stopped.is_set():
            self._send("evaluated", step, result.mean_return)
            if not self._go.get():
                trainer.stop()


def _fault(error: BaseException | None) -> str:
    """Return the kind of failure: DIVERGED, IN_USE, HINDERED or FAILED.

    HINDERED means that the cause is the machine, such as a full disk, or a file that was edited.
    """
    if isinstance(error, NonFiniteError):
        return DIVERGED
    if isinstance(error, RunInUseError):
        return IN_USE
    while error is not None and not isinstance(error, EnvironmentFailedError):
        if isinstance(error, OSError | HinderedError):
            return HINDERED
        error = error.__cause__
    return FAILED
