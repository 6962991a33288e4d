"""A process that trains one run after another, and may wait after each evaluation for its parent's word.

    gets      ("train", a Job) | ("go",) | ("stop",)          end of stream: the parent is gone, and this ends at once
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
import signal
import sys
import threading
from pathlib import Path
from typing import Any, BinaryIO

from duetto.runs.job import Job, outcome


def send(stream: BinaryIO, message: tuple[Any, ...]) -> None:
    """Write one message, a line of JSON. OSError if nobody reads any more."""
    stream.write(json.dumps(message).encode() + b"\n")
    stream.flush()


def receive(stream: BinaryIO) -> list[Any] | None:
    """Read one message; None at the end of the stream."""
    line = stream.readline()
    return json.loads(line) if line.endswith(b"\n") else None


def compiled() -> Any:
    """The module `jax_cache`, if this process has learned on JAX: nothing may import JAX for it."""
    return sys.modules.get("duetto.learners.jax_cache")


def main() -> None:
    """Serve until the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's
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
        self._trainer: Any = None
        self._at_work = False
        threading.Thread(target=self._listen, daemon=True).start()

    def serve(self) -> None:
        """Train the jobs that come, one after another."""
        while True:
            self._trainer = None
            job = pickle.loads(base64.b64decode(self._jobs.get()))
            outcome = self._train(job)
            if programs := compiled():
                programs.hand_over()
            self._at_work = False
            self._say(*outcome)

    def _listen(self) -> None:
        while (message := receive(self._asked)) is not None:
            if message[0] == "train":
                self._stopped.clear()
                self._at_work = True
                self._jobs.put(message[1])
            elif message[0] == "go":
                self._go.put(True)
            else:
                self._stopped.set()
                if self._trainer is not None:
                    self._trainer.interrupt()
                self._go.put(False)
        if not self._at_work and (programs := compiled()):
            programs.end()  # which nothing else would do, as Python does not end by itself
        os._exit(1)  # its run can be taken up from its last checkpoint, as after kill -9

    def _say(self, *message: Any) -> None:
        try:
            send(self._said, message)
        except OSError:
            os._exit(1)

    def _train(self, job: Job) -> tuple[Any, ...]:
        from duetto.training.callbacks import Callback

        worker = self
        while not self._go.empty():
            self._go.get()

        class Judged(Callback):
            """A callback that reports each evaluation to the parent, and waits for its answer."""

            def on_evaluation(self, trainer: Any) -> None:
                step, result = trainer.last_evaluation
                if step and not worker._stopped.is_set():
                    worker._say("evaluated", step, result.mean_return)
                    if not worker._go.get():
                        trainer.stop()

        return outcome(job, [Judged()] if job.waits else [], lambda trainer: self._begun(job, trainer))

    def _begun(self, job: Job, trainer: Any) -> None:
        self._trainer = trainer
        if self._stopped.is_set():
            trainer.interrupt()
        self._say("started", _evaluations(job.folder), trainer.step)


def _evaluations(folder: Path) -> list[tuple[int, float]]:
    from duetto.storage.logs import Csv

    rows = Csv.read(folder / "evaluations.csv")
    return [(int(float(row["step"])), float(row["mean_return"])) for row in rows]


if __name__ == "__main__":
    main()
