"""The parent's side of a process that trains, where the process ends otherwise than it should."""

from __future__ import annotations

import os
import queue
import threading
from pathlib import Path

import pytest

from duetto.errors import DuettoError
from duetto.runs import pool
from duetto.runs.pool import WorkerProcess


def test_where_its_log_cannot_be_written_a_sentence_says_so(tmp_path: Path):
    (tmp_path / "logs").touch()
    with pytest.raises(DuettoError, match=r"logs.log cannot be written: .*\. Fix that; the same call continues\."):
        WorkerProcess(queue.Queue(), tmp_path / "logs" / "log")


def test_a_pipe_that_is_held_open_longer_than_anybody_waits_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pool, "LAST_MESSAGES_SECONDS", 0.05)
    listening: list[threading.Thread] = []
    reading, held = os.pipe()
    stream = os.fdopen(reading, "rb")
    listen = WorkerProcess._listen

    def listens(worker: WorkerProcess, _: object) -> None:
        listening.append(threading.current_thread())
        listen(worker, stream)

    monkeypatch.setattr(WorkerProcess, "_listen", listens)
    inbox: queue.Queue[object] = queue.Queue()
    worker = WorkerProcess(inbox, tmp_path / "log")
    worker._process.stdout.close()
    worker.kill()
    assert inbox.get(timeout=10)[1] == ("gone", -9)
    assert listening[0].is_alive()
    assert not stream.closed
    os.close(held)  # by what the process had started
    listening[0].join(10)
    assert stream.closed
