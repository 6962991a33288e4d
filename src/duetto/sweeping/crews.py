"""The crews that train the runs of a sweep: processes of this machine, one a run, or tasks of a Ray cluster."""

from __future__ import annotations

import os
import queue
import socket
import time
import uuid
from pathlib import Path
from typing import Any, Protocol

from duetto.cluster.options import show_token
from duetto.processor import cores
from duetto.runs.job import FAILED, Job, outcome
from duetto.runs.worker import compiled
from duetto.runs.workers import SHARED, Worker

LOGS = "logs"  # the folder of what processes print, in the sweep's
GLANCE = 1.0  # seconds between a task's looks at whether it shall stop
Message = tuple[Any, ...]  # ("started", evaluations, step), or an end: see `runs.worker`; ("gone", the process' code)


class Crew(Protocol):
    """A group of processes or tasks that trains a limited number of jobs at a time."""

    def room(self) -> bool:
        """Whether one more job may begin."""
        ...

    def begin(self, job: Job) -> None:
        """Begin to train a job, or resume it."""
        ...

    def wait(self, seconds: float) -> list[tuple[Job, Message]]:
        """Wait for messages of jobs; an empty list if none comes for so many seconds."""
        ...

    def stop(self) -> None:
        """Let all runs end, with a checkpoint; each sends one more message."""
        ...

    def kill(self) -> None:
        """Kill all processes."""
        ...

    def close(self) -> None:
        """Release the crew, when no job is left."""
        ...


class Processes:
    """A crew of processes of this machine. Each trains one run, as `duetto train` does, with its share of the cores."""

    def __init__(self, jobs: int, logs: Path) -> None:
        """`logs` is the folder of what the processes print, a file for each."""
        self._jobs, self._logs = jobs, logs
        self._inbox: queue.Queue[tuple[Worker, Message]] = queue.Queue()
        self._at_work: dict[Worker, Job] = {}

    def room(self) -> bool:
        """See Crew."""
        return len(self._at_work) < self._jobs

    def begin(self, job: Job) -> None:
        """See Crew."""
        worker = Worker(self._inbox, log_of(self._logs, job), threads=max(1, cores() // self._jobs))
        self._at_work[worker] = job
        worker.train(job)

    def wait(self, seconds: float) -> list[tuple[Job, Message]]:
        """See Crew."""
        try:
            worker, message = self._inbox.get(timeout=seconds)
        except queue.Empty:
            return []
        job = self._at_work.get(worker)
        if job is None:  # the last word of one whose run is over
            return []
        if message[0] != "started":
            del self._at_work[worker]
            worker.close()
        return [(job, message)]

    def stop(self) -> None:
        """See Crew."""
        for worker in self._at_work:
            worker.stop()

    def kill(self) -> None:
        """See Crew."""
        for worker in self._at_work:
            worker.kill()

    def close(self) -> None:
        """See Crew."""


class Tasks:
    """A crew of tasks on a Ray cluster whose machines all see the sweep's folder: a CPU for each run, and a GPU if it
    learns on one.

    A file in that folder asks them to stop: Ray itself could only cancel them.
    """

    def __init__(self, address: str | None, jobs: int | None, folder: Path) -> None:
        """`address` None: a cluster on this machine, for this sweep; `jobs` None: as many as there are CPUs."""
        show_token(address)
        from duetto.cluster.ray import RayTasks

        self._ray = RayTasks(address, jobs or cores())
        self._jobs, self._here = jobs, address is None
        self._sign = folder / f".stop-{uuid.uuid4().hex[:8]}"
        self._tasks: dict[Any, Job] = {}

    def room(self) -> bool:
        """See Crew."""
        return len(self._tasks) < (self._jobs or self._ray.cpus())

    def begin(self, job: Job) -> None:
        """See Crew."""
        log_of(self._sign.parent / LOGS, job).unlink(missing_ok=True)  # of an earlier failure
        gpus = int(job.run.device == "cuda" and not self._here)
        self._tasks[self._ray.task(_in_a_task, job, self._sign, gpus=gpus)] = job

    def wait(self, seconds: float) -> list[tuple[Job, Message]]:
        """See Crew."""
        if not self._tasks:
            time.sleep(seconds)
            return []
        answers = self._ray.wait(list(self._tasks), seconds, enough=1)
        return [
            (self._tasks.pop(task), answer.value or ("failed", FAILED, f"Its task {answer.failure}.", answer.details))
            for task, answer in answers.items()
        ]

    def stop(self) -> None:
        """See Crew."""
        self._sign.touch()

    def kill(self) -> None:
        """See Crew."""
        self.close()

    def close(self) -> None:
        """See Crew."""
        self._ray.close(list(self._tasks))
        self._sign.unlink(missing_ok=True)


def log_of(logs: Path, job: Job) -> Path:
    """The path of the file with what a run's process printed, and why it failed."""
    return logs / f"{job.name}.txt"


def _in_a_task(job: Job, sign: Path) -> Message:
    if not job.parent.is_dir():
        where = f"The machine {socket.gethostname()} has no folder {job.parent}."
        return "failed", FAILED, f"{where} Give an --output that all machines of the cluster see.", ""
    if sign.exists():
        return "ended", True, []
    os.environ.update(SHARED | os.environ)  # its process is its own, and has not imported JAX
    looked = time.monotonic()

    def look(session: Any) -> None:
        nonlocal looked
        if time.monotonic() > looked + GLANCE:
            looked = time.monotonic()
            if sign.exists():
                session.stop(evaluates=False)

    answer = outcome(job, [look])
    if programs := compiled():
        programs.end()
    return answer
