"""A process that trains one seed of a trial after another, and waits after each evaluation for what the study says.

    gets      ("train", a Job) | ("go",) | ("stop",)          its end: the study is gone, and so is this at once
    says      ("started", evaluations so far, step) | ("evaluated", step, mean return)
              | ("ended", stopped, notices) | ("failed", kind, sentence, trace)

It talks to its parent alone, over its own stdin and stdout; what an environment prints goes to stderr.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import queue
import shutil
import signal
import threading
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from duetto import environments
from duetto.algorithms import Algorithm
from duetto.errors import DuettoError, EnvironmentFailedError, NonFiniteError, RunInUseError
from duetto.storage.config import RunOptions
from duetto.storage.origin import Origin, from_file

PATIENCE = 10.0  # seconds for the process that worked on a run before this one to be gone
DIVERGED, FAILED = "diverged", "failed"


@dataclass(frozen=True)
class Job:
    """A run to begin, or to take up where its folder is there."""

    parent: Path
    name: str
    algorithm: Algorithm | dict[str, Any]  # the options alone, where the class comes from a file
    environment: Any
    run: RunOptions
    preset: str
    environment_options: dict[str, Any] = field(default_factory=dict)
    origin: Origin | None = None
    registration: Any = None  # of an environment whose id a script has registered

    @property
    def folder(self) -> Path:
        """The run's."""
        return self.parent / self.name


def send(stream: BinaryIO, message: tuple[Any, ...]) -> None:
    """Write one message, a line of JSON. OSError where nobody reads any more."""
    stream.write(json.dumps(message).encode() + b"\n")
    stream.flush()


def receive(stream: BinaryIO) -> list[Any] | None:
    """Read one message; None where there is none any more."""
    line = stream.readline()
    return json.loads(line) if line.endswith(b"\n") else None


def main() -> None:
    """Serve until the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the study's
    said = os.fdopen(os.dup(1), "wb")
    asked = os.fdopen(os.dup(0), "rb")
    os.dup2(2, 1)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    Worker(asked, said).serve()


class Worker:
    """The process's side of the pipe."""

    def __init__(self, asked: BinaryIO, said: BinaryIO) -> None:
        self._asked, self._said = asked, said
        self._jobs: queue.Queue[str] = queue.Queue()
        self._go: queue.Queue[bool] = queue.Queue()
        self._stopped = threading.Event()
        self._session: Any = None
        threading.Thread(target=self._listen, daemon=True).start()

    def serve(self) -> None:
        """Train what is asked for, one after another."""
        while True:
            self._session = None
            try:
                notices = self._train(pickle.loads(base64.b64decode(self._jobs.get())))
                self._say("ended", self._stopped.is_set(), notices)
            except NonFiniteError as error:
                self._say("failed", DIVERGED, str(error), "")
            except EnvironmentFailedError as error:
                self._say("failed", FAILED, error.sentence, error.trace)
            except DuettoError as error:
                self._say("failed", FAILED, str(error), "")
            except Exception as error:  # a trial's failure is no reason to end the study
                self._say("failed", FAILED, f"{type(error).__name__}: {error}", traceback.format_exc())

    def _listen(self) -> None:
        while (message := receive(self._asked)) is not None:
            if message[0] == "train":
                self._stopped.clear()
                self._jobs.put(message[1])
            elif message[0] == "go":
                self._go.put(True)
            else:
                self._stopped.set()
                if self._session is not None:
                    self._session.stop()
                self._go.put(False)
        os._exit(1)  # its run can be taken up from its last checkpoint, as after kill -9

    def _say(self, *message: Any) -> None:
        try:
            send(self._said, message)
        except OSError:
            os._exit(1)

    def _train(self, job: Job) -> list[str]:
        from duetto.runs.run import Run, start
        from duetto.training.callbacks import Callback

        worker = self
        while not self._go.empty():
            self._go.get()

        class Judged(Callback):
            """Says each evaluation, and waits for the answer."""

            def on_start(self, session: Any) -> None:
                worker._session = session
                if worker._stopped.is_set():
                    session.stop()
                worker._say("started", _evaluations(job.folder), session.step)

            def on_evaluation(self, session: Any) -> None:
                step, result = session.last_evaluation
                if step and not worker._stopped.is_set():
                    worker._say("evaluated", step, result.mean_return)
                    if not worker._go.get():
                        session.stop()

        environments.register(job.registration)
        algorithm, origin = _algorithm(job)
        if not (job.folder / "config.yaml").is_file():
            shutil.rmtree(job.folder, ignore_errors=True)  # nothing had begun
            start(
                algorithm,
                job.environment,
                job.run,
                runs_dir=job.parent,
                name=job.name,
                preset=job.preset,
                environment_options=job.environment_options,
                callbacks=[Judged()],
                origin=origin,
            )
            return list(self._session.notices)
        in_file = origin is not None and origin.file  # which is read again, to see whether it was edited
        own = type(algorithm) if Origin.of(type(algorithm)) and not in_file else None
        given = None if isinstance(job.environment, str) else job.environment
        run = Run(job.folder, environment=given, networks=algorithm.custom_networks(), algorithm=own)
        _patiently(lambda: run.resume(callbacks=[Judged()], progress=False))
        return list(self._session.notices)


def _algorithm(job: Job) -> tuple[Algorithm, Origin | None]:
    if isinstance(job.algorithm, Algorithm):
        return job.algorithm, job.origin
    assert job.origin is not None
    kind, origin = from_file(Path(job.origin.file), job.origin.kind)
    return kind(**job.algorithm), origin


def _evaluations(folder: Path) -> list[tuple[int, float]]:
    from duetto.storage.records import Csv

    rows = Csv.read(folder / "evaluations.csv")
    return [(int(float(row["step"])), float(row["mean_return"])) for row in rows]


def _patiently(work: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            work()
            return
        except RunInUseError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


if __name__ == "__main__":
    main()
