"""How far a run is, read from its logs while somebody writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from duetto.learners import runtime
from duetto.tools.sweep.plan import last_evaluation


def test_the_last_evaluation_that_can_be_read(tmp_path: Path):
    assert last_evaluation(tmp_path) is None
    table = tmp_path / "evaluations.csv"
    table.write_text("step,mean_return\n0,-9.0\n30,-1.5\n")
    assert last_evaluation(tmp_path) == (30, -1.5)
    table.write_text("step,mean_return\n")
    assert last_evaluation(tmp_path) is None


@pytest.mark.parametrize(("said", "most"), [(None, 4), ("2", 2), ("2,1", 2), ("16", 4), ("0", 4), ("many", 4)])
def test_threads_are_a_process_share_of_the_cores(monkeypatch: pytest.MonkeyPatch, said: str | None, most: int):
    monkeypatch.setattr(runtime, "cores", lambda: 8)
    monkeypatch.delenv(runtime.OMP_THREADS, raising=False)
    if said is not None:
        monkeypatch.setenv(runtime.OMP_THREADS, said)
    assert runtime.available_threads() == most
