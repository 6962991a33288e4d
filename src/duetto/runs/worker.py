"""What trains a run in another process: the job, and the worker that gets jobs one after another.

    receives  ("train", packed job) | ("go",) | ("stop",)       it exits at the end of the stream: the pool is gone
    sends     ("started", evaluations so far, step) | ("evaluated", step, mean return)
              | ("ended", stopped, notices) | ("failed", kind, sentence, traceback)

A worker talks to its pool over its own stdin and stdout; the output of environments goes to stderr.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import queue
import signal
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import cloudpickle

from duetto import environments, trackers
from duetto.errors import DuettoError, EnvironmentFailedError, NonFiniteError, RunInUseError, UsageError
from duetto.runs.config_changes import HinderedError, check_same_run
from duetto.runs.run import ResumeOptions, run_of, start
from duetto.runs.spec import RunSpec
from duetto.storage import user_code
from duetto.storage.config import Config
from duetto.storage.lock import FolderLock
from duetto.storage.logs import Csv
from duetto.storage.run_folder import clear, foreign
from duetto.training.callbacks import AnyCallback, Callback
from duetto.training.trainer import Trainer

PATIENCE = 10.0  # seconds for the process that worked on a run before this one to be gone
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

    def work(self, callbacks: Sequence[AnyCallback] = (), on_start: Callable[[Trainer], None] = lambda _: None) -> None:
        """Train to the end.

        Raises as `duetto.train` does; RunInUseError if another process works on the run; HinderedError if its folder
        has a run of other options, or a file that it is made of was edited since the job was made.
        """
        spec = self._unedited_spec()
        callbacks = [*callbacks, *trackers.callbacks(self.track)]
        with ExitStack() as claimed:
            if self.is_contested:
                claim = Path(spec.runs_dir) / CLAIMS / self.name
                claim.mkdir(parents=True, exist_ok=True)
                _patiently(lambda: claimed.enter_context(FolderLock(claim)))

            def started(trainer: Trainer) -> None:
                claimed.close()  # from here on, the run's own lock keeps others away
                on_start(trainer)

            if not (self.folder / "config.yaml").is_file():
                if not foreign(self.folder):
                    clear(self.folder)
                if os.path.lexists(self.folder):
                    raise HinderedError(
                        f"{self.folder} is no run: it has no config.yaml. Put that back, or move it away."
                    )
                start(spec, callbacks, started)
                return
        check_same_run(self.folder, self.config)
        run = run_of(spec, self.folder, self.config)
        _patiently(lambda: run.resume_with(ResumeOptions(callbacks=callbacks, on_start=on_start)))

    def _unedited_spec(self) -> RunSpec:
        """Return the spec with its algorithm made from its file again. HinderedError if a file was edited."""
        spec, origin = self.spec, self.spec.origin
        if self.config.checksum and user_code.checksum(self.config.environment) != self.config.checksum:
            raise _edited(self.config.environment)
        if origin is None or not origin.file:
            return spec
        kind, now = user_code.from_file(Path(origin.file), origin.kind)
        if now.checksum != origin.checksum:
            raise _edited(f"{origin.file}:{origin.kind}")
        options = {option: getattr(spec.algorithm, option) for option in kind.options()}
        return replace(spec, algorithm=kind(**options), origin=now)


def pack(job: Job) -> bytes:
    """Pickle a job for another process. UsageError if its environment cannot be sent there."""
    try:
        return cloudpickle.dumps((job, environments.registration(job.spec.environment)))
    except Exception as error:  # of any kind, from the user's own objects
        raise UsageError(
            f"The environment cannot be sent to the processes that train ({error}). Pass an id, or a function that "
            "makes environments."
        ) from error


def unpack(packed: bytes) -> Job:
    """Undo `pack`, and register the environment's id if a script had registered it."""
    job, registration = pickle.loads(packed)
    environments.register(registration)
    return job


def outcome(
    job: Job, callbacks: Sequence[AnyCallback] = (), on_start: Callable[[Trainer], None] = lambda _: None
) -> Message:
    """Train, and return the last message: "ended", or "failed" as DIVERGED, FAILED, HINDERED or IN_USE."""
    trainers: list[Trainer] = []

    def started(trainer: Trainer) -> None:
        trainers.append(trainer)
        on_start(trainer)

    try:
        job.work(callbacks, started)
        trainer = trainers[-1]  # a run that continues after it lost a part of itself has a new one
        return "ended", trainer.stopped, list(trainer.notices)
    except NonFiniteError as error:
        return "failed", DIVERGED, str(error), ""
    except EnvironmentFailedError as error:
        return "failed", FAILED, error.sentence, error.trace
    except RunInUseError as error:
        return "failed", IN_USE, str(error), ""
    except DuettoError as error:
        return "failed", _fault(error), str(error), ""
    except Exception as error:  # of one run, which is no reason to end the others
        return "failed", _fault(error), f"{type(error).__name__}: {error}", traceback.format_exc()


def _fault(error: BaseException | None) -> str:
    """Return HINDERED if the cause is the machine, such as a full disk, or something that was edited; else FAILED."""
    while error is not None and not isinstance(error, EnvironmentFailedError):
        if isinstance(error, OSError | HinderedError):
            return HINDERED
        error = error.__cause__
    return FAILED


def _edited(name: str) -> HinderedError:
    return HinderedError(
        f"{name} was edited while runs of it wait for their turn: this one would be of other code than those before "
        "it. Put the file back, and give the same command again; or start all runs anew, with another --output."
    )


def _patiently(work: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            work()
            return
        except RunInUseError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


# ---------------------------------------------------------------------------------------------------- a process
def send(stream: BinaryIO, message: Message) -> None:
    """Write one message, a line of JSON. OSError if nobody reads any more."""
    stream.write(json.dumps(message).encode() + b"\n")
    stream.flush()


def receive(stream: BinaryIO) -> Message | None:
    """Read one message; None at the end of the stream."""
    line = stream.readline()
    return tuple(json.loads(line)) if line.endswith(b"\n") else None


def encode(packed: bytes) -> str:
    """Return a packed job as text for a message."""
    return base64.b64encode(packed).decode()


def main() -> None:
    """Train jobs until the pool is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the pool's process handles Ctrl-C
    sent = os.fdopen(os.dup(1), "wb")
    received = os.fdopen(os.dup(0), "rb")
    os.dup2(2, 1)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    Worker(received, sent).serve()


class Worker:
    """The worker's side of the pipe."""

    def __init__(self, received: BinaryIO, sent: BinaryIO) -> None:
        self._received, self._sent = received, sent
        self._jobs: queue.Queue[str] = queue.Queue()
        self._go: queue.Queue[bool] = queue.Queue()
        self._stopped = threading.Event()
        self._trainer: Trainer | None = None
        self._is_working = False
        threading.Thread(target=self._listen, daemon=True).start()

    def serve(self) -> None:
        """Train one job after another."""
        while True:
            self._trainer = None
            message = self._train(unpack(base64.b64decode(self._jobs.get())))
            self._is_working = False
            self._send(*message)

    def _listen(self) -> None:
        while (message := receive(self._received)) is not None:
            if message[0] == "train":
                self._stopped.clear()
                self._is_working = True
                self._jobs.put(message[1])
            elif message[0] == "go":
                self._go.put(True)
            else:
                self._stopped.set()
                if self._trainer is not None:
                    self._trainer.interrupt()
                self._go.put(False)
        os._exit(1)  # its run resumes from its last checkpoint, as after kill -9

    def _send(self, *message: Any) -> None:
        try:
            send(self._sent, message)
        except OSError:
            os._exit(1)

    def _train(self, job: Job) -> Message:
        worker = self
        while not self._go.empty():
            self._go.get()

        class Waiting(Callback):
            """Send each evaluation to the pool, and wait for its answer."""

            def on_evaluation(self, trainer: Trainer) -> None:
                assert trainer.last_evaluation is not None
                step, result = trainer.last_evaluation
                if step and not worker._stopped.is_set():
                    worker._send("evaluated", step, result.mean_return)
                    if not worker._go.get():
                        trainer.stop()

        return outcome(job, [Waiting()] if job.waits else [], lambda trainer: self._start(job, trainer))

    def _start(self, job: Job, trainer: Trainer) -> None:
        self._trainer = trainer
        if self._stopped.is_set():
            trainer.interrupt()
        rows = Csv.read(job.folder / "evaluations.csv")
        evaluations = [(int(float(row["step"])), float(row["mean_return"])) for row in rows]
        self._send("started", evaluations, trainer.step)


if __name__ == "__main__":
    main()
