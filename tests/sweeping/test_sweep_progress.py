"""How far a run is, read from its logs while somebody writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from duetto.learners import threads
from duetto.sweeping import progress


def test_the_last_whole_line_counts(tmp_path: Path):
    assert progress.read(tmp_path) == (0, None)
    logs = tmp_path / "metrics.jsonl"
    logs.write_text('{"step": 10}\n{"step": 20}\n{"step": 3')
    assert progress.read(tmp_path) == (20, None)
    logs.write_text('{"step": 10}\n' + '{"step": 20, "x": 0.123456789}\n' * 10_000)
    assert progress.read(tmp_path) == (20, None)
    table = tmp_path / "evaluations.csv"
    table.write_text("step,mean_return\n0,-9.0\n30,-1.5\n")
    assert progress.read(tmp_path) == (30, -1.5)
    table.write_text("step,mean_return\n")
    logs.write_bytes(b"\xff\xfe\n")
    assert progress.read(tmp_path) == (0, None)


@pytest.mark.parametrize(("said", "most"), [(None, 8), ("2", 2), ("2,1", 2), ("16", 8), ("0", 8), ("many", 8)])
def test_threads_are_a_process_share_of_the_cores(monkeypatch: pytest.MonkeyPatch, said: str | None, most: int):
    monkeypatch.setattr(threads, "cores", lambda: 8)
    monkeypatch.delenv(threads.SHARE, raising=False)
    if said is not None:
        monkeypatch.setenv(threads.SHARE, said)
    assert threads.granted() == most
