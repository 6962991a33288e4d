"""`WorkerProcess`, seen from the parent: unwritable logs and killed workers."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from duetto.errors import DuettoError
from duetto.runs import pool
from duetto.runs.pool import WorkerProcess


def test_unwritable_worker_log_is_reported(tmp_path: Path):
    (tmp_path / "logs").touch()
    with pytest.raises(DuettoError, match=r"logs.log cannot be written: .*\. Fix that; the same call continues\."):
        WorkerProcess(tmp_path / "logs" / "log", 1)


def test_worker_death_is_detected_while_pipe_stays_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    start, held = pool.subprocess_python.start, list[int]()

    def starting(program: str, stdin: int, *streams: object) -> object:
        held.append(os.dup(stdin))
        return start(program, stdin, *streams)

    monkeypatch.setattr(pool.subprocess_python, "start", starting)
    worker = WorkerProcess(tmp_path / "log", 1)
    assert worker.receive() is None
    worker._process.kill()
    deadline = time.monotonic() + 10
    while (message := worker.receive()) is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert message == ("gone", -9)
    os.close(held[0])
    worker.close()
