"""The checkpoint store if the process is killed, or the disk fails, at any file operation of a save."""

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from fake_disk import DyingOS, FailingOS, Killed
from fake_run import FakeMemory, has_all_rows, restart, run_at_200, same, save, state_at

from duetto.errors import CheckpointError
from duetto.storage import atomic_io
from duetto.storage.checkpoint import CheckpointStore


def save_next(store: CheckpointStore, memory: FakeMemory) -> None:
    memory.add(10, 9)
    save(store, memory, 300)


def save_again(store: CheckpointStore, memory: FakeMemory) -> None:
    memory.add(1, 1)
    save(store, memory, 200, branch=1)


def save_after_fallback(store: CheckpointStore, memory: FakeMemory) -> None:
    """Continue from the older checkpoint, at step 100, and save at step 150."""
    store.load(100)
    memory.written = store.covered + 2
    save(store, memory, 150, branch=1)


# (step, branch) of the checkpoints that may remain (the new one last): rows written by then, per environment
OUTCOMES = {
    save_next: {(200, 0): [30, 27], (300, 0): [40, 36]},
    save_again: {(200, 0): [30, 27], (200, 1): [31, 28]},
    save_after_fallback: {(200, 0): [30, 27], (100, 0): [20, 18], (150, 1): [22, 20]},
}


def check_continues(folder: Path, rows: int) -> None:
    """Check that a new store can load, save and clean up."""
    store = restart(folder)
    loaded = store.load_latest()
    memory = FakeMemory(rows, written=store.covered)
    memory.add(4, 0)
    save(store, memory, 1000)
    again = restart(folder).load_latest()
    assert (again.step, again.problems) == (1000, [])
    assert has_all_rows(again, memory.written, rows)
    assert store.steps() == [loaded.step, 1000]
    assert not list(folder.rglob(".tmp-*"))
    assert len(list(folder.glob("step-*"))) == 2


def fail_each_operation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faulty: type[DyingOS | FailingOS]
) -> Iterator[Path]:
    """Yield a run folder at step 200 for each k. The disk fails at the k-th operation of the next save."""
    run_at_200(tmp_path / "start")
    for k in range(1, 200):
        folder = tmp_path / str(k)
        shutil.copytree(tmp_path / "start", folder)
        system = faulty(k)
        monkeypatch.setattr(atomic_io, "os", system)
        yield folder
        shutil.rmtree(folder)
        if len(system.tape) < k:
            assert k > 20
            return
    pytest.fail("a save has no end")


def resumed_store(folder: Path) -> tuple[CheckpointStore, FakeMemory]:
    store = restart(folder)
    store.load_latest()
    return store, FakeMemory(rows=15, written=store.covered)


@pytest.mark.parametrize("action", OUTCOMES)
def test_kill_during_save_leaves_old_or_new_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action):
    seen = set()
    for folder in fail_each_operation(tmp_path, monkeypatch, DyingOS):
        store, memory = resumed_store(folder)
        killed = False
        try:
            action(store, memory)
        except Killed:
            killed = True
        monkeypatch.setattr(atomic_io, "os", os)
        loaded = restart(folder).load_latest()
        found = (loaded.step, loaded.state["branch"])
        seen.add(found)
        assert loaded.problems == []
        assert same(loaded.state, state_at(*found))
        assert has_all_rows(loaded, np.array(OUTCOMES[action][found]), memory.rows)
        assert killed or found == list(OUTCOMES[action])[-1]
        check_continues(folder, memory.rows)
    assert seen == set(OUTCOMES[action])


def test_kill_during_save_leaves_old_or_new_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    seen = set()
    for folder in fail_each_operation(tmp_path, monkeypatch, DyingOS):
        store, _ = resumed_store(folder)
        with suppress(Killed):
            store.save_best(200, state_at(200), {"mean_return": 2.0})
            store.keep_best(200)
        monkeypatch.setattr(atomic_io, "os", os)
        best = restart(folder).load_best()
        seen.add(best.step)
        assert same(best.state, state_at(best.step))
        assert best.info == {"mean_return": best.step / 100}
        store.save_best(300, state_at(300), {})
        store.keep_best(300)
        assert restart(folder).load_best().step == 300
        assert len(list((folder / "best").iterdir())) == 1
    assert seen == {100, 200}


def test_store_continues_after_disk_error_during_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    action, failures = save_after_fallback, 0
    for folder in fail_each_operation(tmp_path, monkeypatch, FailingOS):
        store, memory = resumed_store(folder)
        try:
            action(store, memory)
        except CheckpointError:
            failures += 1
        monkeypatch.setattr(atomic_io, "os", os)
        found = restart(folder).load_latest()
        assert found.problems == []
        assert has_all_rows(found, np.array(OUTCOMES[action][found.step, found.state["branch"]]), memory.rows)
        memory.add(5, 0)
        save(store, memory, 900)  # the same store continues
        loaded = restart(folder).load_latest()
        assert (loaded.step, loaded.problems) == (900, [])
        assert has_all_rows(loaded, memory.written, memory.rows)
        check_continues(folder, memory.rows)
    assert failures > 15
