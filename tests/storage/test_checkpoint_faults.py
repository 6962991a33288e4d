"""What a checkpoint store does when the process is killed, or the disk refuses, at any single file operation."""

import os
import random
import shutil
import subprocess
import sys
import time
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
    """Continues the older step, 100, on a branch that does not reach step 200."""
    store.load(100)
    memory.written = store.covered + 2
    save(store, memory, 150, branch=1)


# (step, branch) of the checkpoints that may be found, the new one last, with the rows that were written until then
OUTCOMES = {
    save_next: {(200, 0): [30, 27], (300, 0): [40, 36]},
    save_again: {(200, 0): [30, 27], (200, 1): [31, 28]},
    save_after_fallback: {(200, 0): [30, 27], (100, 0): [20, 18], (150, 1): [22, 20]},
}


def goes_on(folder: Path, rows: int) -> None:
    """A new process loads, saves and cleans up as if nothing had happened."""
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


def every_operation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faulty: type[DyingOS | FailingOS]
) -> Iterator[Path]:
    """Yield a run folder at step 200 for each k, with a disk that is faulty at the k-th operation, until none is."""
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


def resumed(folder: Path) -> tuple[CheckpointStore, FakeMemory]:
    store = restart(folder)
    store.load_latest()
    return store, FakeMemory(rows=15, written=store.covered)


@pytest.mark.parametrize("action", OUTCOMES)
def test_kill_at_any_operation_leaves_the_old_or_the_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action):
    seen = set()
    for folder in every_operation(tmp_path, monkeypatch, DyingOS):
        store, memory = resumed(folder)
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
        goes_on(folder, memory.rows)
    assert seen == set(OUTCOMES[action])


def test_kill_at_any_operation_leaves_the_old_or_the_new_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    seen = set()
    for folder in every_operation(tmp_path, monkeypatch, DyingOS):
        store, _ = resumed(folder)
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


@pytest.mark.parametrize("action", OUTCOMES)
def test_an_error_at_any_operation_can_be_survived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action):
    failures = 0
    for folder in every_operation(tmp_path, monkeypatch, FailingOS):
        store, memory = resumed(folder)
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
        goes_on(folder, memory.rows)
    assert failures > 15


FOREVER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from fake_run import FakeMemory, restart, save
store = restart(Path(sys.argv[1]))
step = store.load_latest().step if store.steps() else 0
memory = FakeMemory(written=store.covered)
while True:
    memory.add(3, 2)
    step += 1
    save(store, memory, step)
    print(step, flush=True)
"""


def test_a_real_kill(tmp_path: Path):
    for kill in range(4):
        command = [sys.executable, "-c", FOREVER, str(tmp_path), str(Path(__file__).parents[1] / "training")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(random.Random(kill).uniform(0.02, 0.1))
            process.kill()
            saved = [int(line) for line in process.stdout.read().split("\n")[:-1]]
        loaded = restart(tmp_path).load_latest()
        assert loaded.step > kill
        assert loaded.problems == []
        assert same(loaded.state, state_at(loaded.step))
        assert has_all_rows(loaded, loaded.step * np.array([3, 2]), 40)
        assert not saved or loaded.step in (saved[-1], saved[-1] + 1)
