"""The processes that train the runs of a sweep: on this machine, one for each run, or as tasks of a Ray cluster."""

from __future__ import annotations

import os
import queue
import socket
import time
import uuid
from pathlib import Path
from typing import Any

from duetto.cluster.config import show_token
from duetto.cpu import cores
from duetto.runs.job import FAILED, Job, outcome
from duetto.runs.worker import compiled
from duetto.runs.workers import SHARED, WorkerProcess

LOGS = "logs"  # the folder in the sweep's for the output of processes
STOP_POLL_SECONDS = 1.0  # between a task's checks whether to stop
Message = tuple[Any, ...]  # ("started", evaluations, step), or an end: see `runs.worker`; ("gone", the exit code)


class Processes:
    """Processes of this machine. Each trains one run, as `duetto train` does, with its share of the cores."""

    def __init__(self, jobs: int, logs: Path) -> None:
        """`logs` is the folder for the output of the processes, a file for each run."""
        self._jobs, self._logs = jobs, logs
        self._inbox: queue.Queue[tuple[WorkerProcess, Message]] = queue.Queue()
        self._working: dict[WorkerProcess, Job] = {}

    def room(self) -> bool:
        """Return whether one more job may start."""
        return len(self._working) < self._jobs

    def begin(self, job: Job) -> None:
        """Start to train a job, or resume it."""
        worker = WorkerProcess(self._inbox, log_of(self._logs, job), threads=max(1, cores() // self._jobs))
        self._working[worker] = job
        worker.train(job)

    def wait(self, seconds: float) -> list[tuple[Job, Message]]:
        """Wait for messages of jobs; return an empty list if none comes for so many seconds."""
        try:
            worker, message = self._inbox.get(timeout=seconds)
        except queue.Empty:
            return []
        job = self._working.get(worker)
        if job is None:  # the last message of a process whose run has ended
            return []
        if message[0] != "started":
            del self._working[worker]
            worker.close()
        return [(job, message)]

    def stop(self) -> None:
        """Let all runs end, with a checkpoint; each sends one more message."""
        for worker in self._working:
            worker.stop()

    def close(self) -> None:
        """End the pool; kill the processes that still train."""
        for worker in self._working:
            worker.kill()


class Tasks:
    """Tasks on a Ray cluster whose machines all see the sweep's folder. Each has a CPU, and a GPU if it learns on one.

    A file in that folder asks them to stop: Ray itself could only cancel them.
    """

    def __init__(self, address: str | None, jobs: int | None, folder: Path) -> None:
        """`address` None: start a cluster on this machine; `jobs` None: as many as there are CPUs."""
        show_token(address)
        from duetto.cluster.ray import RayTasks

        self._ray = RayTasks(address, jobs or cores())
        self._jobs, self._is_local = jobs, address is None
        self._stop_file = folder / f".stop-{uuid.uuid4().hex[:8]}"
        self._tasks: dict[Any, Job] = {}

    def room(self) -> bool:
        """Return whether one more job may start."""
        return len(self._tasks) < (self._jobs or self._ray.cpus())

    def begin(self, job: Job) -> None:
        """Start to train a job, or resume it."""
        log_of(self._stop_file.parent / LOGS, job).unlink(missing_ok=True)  # of an earlier failure
        gpus = int(job.run.device == "cuda" and not self._is_local)
        self._tasks[self._ray.task(_in_a_task, job, self._stop_file, gpus=gpus)] = job

    def wait(self, seconds: float) -> list[tuple[Job, Message]]:
        """Wait for the ends of jobs; return an empty list if none comes for so many seconds."""
        if not self._tasks:
            time.sleep(seconds)
            return []
        answers = self._ray.wait(list(self._tasks), seconds, enough=1)
        return [
            (self._tasks.pop(task), answer.value or ("failed", FAILED, f"Its task {answer.failure}.", answer.details))
            for task, answer in answers.items()
        ]

    def stop(self) -> None:
        """Let all runs end, with a checkpoint; each sends one more message."""
        self._stop_file.touch()

    def close(self) -> None:
        """End the pool; cancel the tasks that still train."""
        self._ray.close(list(self._tasks))
        self._stop_file.unlink(missing_ok=True)


WorkerPool = Processes | Tasks


def log_of(logs: Path, job: Job) -> Path:
    """Return the path of the file with the output of a run's process, and the reason of its failure."""
    return logs / f"{job.name}.txt"


def _in_a_task(job: Job, stop_file: Path) -> Message:
    if not job.parent.is_dir():
        reason = f"The machine {socket.gethostname()} has no folder {job.parent}."
        return "failed", FAILED, f"{reason} Give an --output that all machines of the cluster see.", ""
    if stop_file.exists():
        return "ended", True, []
    os.environ.update(SHARED | os.environ)  # the task has its own process, which has not imported JAX
    polled = time.monotonic()

    def poll(trainer: Any) -> None:
        nonlocal polled
        if time.monotonic() > polled + STOP_POLL_SECONDS:
            polled = time.monotonic()
            if stop_file.exists():
                trainer.stop(evaluates=False)

    message = outcome(job, [poll])
    if programs := compiled():
        programs.end()
    return message
