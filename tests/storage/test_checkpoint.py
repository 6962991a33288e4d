from pathlib import Path

import pytest
from fake_run import (
    NUM_ENVS,
    FakeMemory,
    flip_bit,
    has_all_rows,
    remembered,
    reopened,
    same,
    save,
    segment_names,
    state_at,
)

from duetto.errors import CheckpointError
from duetto.storage import manifest
from duetto.storage.checkpoint import CheckpointStore


def test_what_is_saved_comes_back(two: CheckpointStore):
    new = reopened(two)
    loaded = new.load_latest()
    assert (loaded.step, loaded.problems, loaded.path) == (200, [], two.folder / "step-000000000200")
    assert same(loaded.state, state_at(200))
    assert remembered(loaded) == [[(0, i) for i in range(20)], [(0, i) for i in range(14)]]
    assert new.covered.tolist() == two.covered.tolist() == [20, 14]
    assert sorted(path.name for path in loaded.path.iterdir()) == ["manifest.json", "state.json", "state.safetensors"]


def test_an_older_step_can_be_loaded_and_others_are_named(two: CheckpointStore):
    loaded = two.load(100)
    assert same(loaded.state, state_at(100))
    assert remembered(loaded) == [[(0, i) for i in range(10)], [(0, i) for i in range(7)]]
    with pytest.raises(CheckpointError, match=r"150.*100, 200"):
        two.load(150)


def test_keep_newest_checkpoints_and_the_segments_that_they_list(tmp_path: Path):
    """Memory of 40 rows, 15 more each save, keep 2.

    save      1      2      3      4      5      6
    rows    0-15  15-30  30-45  45-60  60-75  75-90
    oldest     0      0      5     20     35     50
    lists      1    1 2  1 2 3  2 3 4  3 4 5  4 5 6
    """
    store = CheckpointStore(tmp_path, keep=2, num_envs=NUM_ENVS)
    memory = FakeMemory()
    for number in range(1, 7):
        memory.add(15, 15)
        save(store, memory, number)
        kept = range(max(number - 1, 1), number + 1)
        assert store.steps() == list(kept)
        needed = {n for k in kept for n in range(max(k - 2, 1), k + 1)}
        assert segment_names(store) == [f"segment-{n:012}.safetensors" for n in sorted(needed)]
        assert has_all_rows(reopened(store).load_latest(), memory.written, memory.rows)


def test_exactly_the_segments_with_a_needed_row_are_kept(tmp_path: Path):
    """Also when environments advance unequally, or one of them not at all."""
    store = CheckpointStore(tmp_path, keep=1, num_envs=NUM_ENVS)
    memory = FakeMemory(rows=20)
    rows: list[set[tuple[int, int]]] = []  # of each segment: (environment, row)
    counts = [(5, 5), (12, 0), (12, 0), (8, 0), (20, 1), (0, 14), (1, 1), (40, 0), (0, 5), (0, 20), (19, 1), (1, 19)]
    for step, count in enumerate(counts):
        before = memory.written
        memory.add(*count)
        save(store, memory, step)
        oldest = memory.written - memory.rows
        rows.append({(env, i) for env in range(NUM_ENVS) for i in range(before[env], memory.written[env])})
        needed = [n for n, segment in enumerate(rows, 1) if any(i >= oldest[env] for env, i in segment)]
        assert segment_names(store) == [f"segment-{n:012}.safetensors" for n in needed]
        assert has_all_rows(reopened(store).load_latest(), memory.written, memory.rows)


def test_a_resumed_run_keeps_what_it_found(two: CheckpointStore):
    store = CheckpointStore(two.folder, keep=3, num_envs=NUM_ENVS)
    store.load_latest()
    store.save(300, state_at(300), None, store.covered - 40)
    assert store.steps() == [100, 200, 300]


def test_the_same_step_is_replaced(two: CheckpointStore):
    memory = FakeMemory(written=two.covered)
    memory.add(3, 3)
    save(two, memory, 200, branch=7)
    loaded = reopened(two).load_latest()
    assert same(loaded.state, state_at(200, branch=7))
    assert two.steps() == [100, 200]
    assert [path.name for path in two.folder.glob("step-*200*")] == ["step-000000000200-2"]


def test_other_runs_are_not_overwritten(two: CheckpointStore):
    with pytest.raises(CheckpointError, match=r"duetto resume .*run"):
        reopened(two).save(300, state_at(300))
    assert two.steps() == [100, 200]


def test_nothing_there(store: CheckpointStore):
    for load in (store.load_latest, store.load_best, lambda: store.load(3)):
        with pytest.raises(CheckpointError, match="no"):
            load()
    store.folder.mkdir(parents=True)
    (store.folder / "model.zip").write_text("another library's")
    with pytest.raises(CheckpointError, match="Duetto run"):
        store.load_latest()
    assert store.steps() == []


def test_what_a_living_run_removes_while_it_is_read_is_no_damage(two: CheckpointStore, monkeypatch: pytest.MonkeyPatch):
    memory = FakeMemory(written=two.covered)
    read = manifest.read_folder

    def read_late(folder: Path):
        monkeypatch.undo()
        for step in (300, 400):
            memory.add(20, 20)
            save(two, memory, step)
        return read(folder)

    monkeypatch.setattr(manifest, "read_folder", read_late)
    loaded = reopened(two).load_latest()
    assert (loaded.step, loaded.problems) == (400, [])


def test_best_of_a_checkpoint_that_was_not_settled_is_gone_back_to(two: CheckpointStore):
    """As after a kill between the checkpoint and that."""
    for step in (60, 120):
        two.save_best(step, state_at(step), {})
    found = reopened(two)  # continues from a checkpoint at 120
    found.keep_best(120)
    found.save_best(180, state_at(180), {})
    found.keep_best(120)  # killed again
    assert reopened(two).load_best().step == 120


def test_best_is_replaced_and_verified(two: CheckpointStore):
    with pytest.raises(CheckpointError, match="no best parameters yet"):
        two.load_best()
    for step in (100, 200):
        two.save_best(step, state_at(step), {"mean_return": float("inf"), "episodes": 10})
        best = reopened(two).load_best()
        assert (best.step, best.info) == (step, {"mean_return": float("inf"), "episodes": 10})
        assert same(best.state, state_at(step))
    assert len(list((two.folder / "best").iterdir())) == 2
    two.keep_best(200)
    assert list((two.folder / "best").iterdir()) == [best.path]
    assert two.steps() == [100, 200]
    for file in sorted(best.path.iterdir()):
        whole = file.read_bytes()
        flip_bit(file, len(whole) // 2)
        with pytest.raises(CheckpointError, match=file.name):
            two.load_best()
        file.write_bytes(whole)
