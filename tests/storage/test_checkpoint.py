"""The checkpoint store: saving, loading, and deleting old checkpoints and segments."""

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


def test_loaded_checkpoint_equals_the_saved_one(two_checkpoints: CheckpointStore):
    new = reopened(two_checkpoints)
    loaded = new.load_latest()
    assert (loaded.step, loaded.problems, loaded.path) == (200, [], two_checkpoints.folder / "step-000000000200")
    assert same(loaded.state, state_at(200))
    assert remembered(loaded) == [[(0, i) for i in range(20)], [(0, i) for i in range(14)]]
    assert new.covered.tolist() == two_checkpoints.covered.tolist() == [20, 14]
    assert sorted(path.name for path in loaded.path.iterdir()) == ["manifest.json", "state.json", "state.safetensors"]


def test_older_step_can_be_loaded_and_missing_refused(two_checkpoints: CheckpointStore):
    loaded = two_checkpoints.load(100)
    assert same(loaded.state, state_at(100))
    assert remembered(loaded) == [[(0, i) for i in range(10)], [(0, i) for i in range(7)]]
    with pytest.raises(CheckpointError, match=r"150.*100, 200"):
        two_checkpoints.load(150)


def test_only_needed_checkpoints_and_segments_are_kept(tmp_path: Path):
    """The store keeps two checkpoints and the segments they need. Environments advance at different speeds."""
    store = CheckpointStore(tmp_path, keep=2, num_envs=NUM_ENVS)
    memory = FakeMemory(rows=20)
    rows: list[set[tuple[int, int]]] = []  # for each segment: its (environment, row) pairs
    needed: list[set[int]] = []  # for each checkpoint: the numbers of its segments
    counts = [(5, 5), (12, 0), (12, 0), (8, 0), (20, 1), (0, 14), (1, 1), (40, 0), (0, 5), (0, 20), (19, 1), (1, 19)]
    for step, count in enumerate(counts):
        before = memory.written
        memory.add(*count)
        save(store, memory, step)
        oldest = memory.written - memory.rows
        rows.append({(env, i) for env in range(NUM_ENVS) for i in range(before[env], memory.written[env])})
        needed.append({n for n, segment in enumerate(rows, 1) if any(i >= oldest[env] for env, i in segment)})
        assert store.steps() == list(range(max(step - 1, 0), step + 1))
        assert segment_names(store) == [f"segment-{n:012}.safetensors" for n in sorted(set().union(*needed[-2:]))]
        assert has_all_rows(reopened(store).load_latest(), memory.written, memory.rows)


def test_resumed_run_keeps_older_checkpoints(two_checkpoints: CheckpointStore):
    store = CheckpointStore(two_checkpoints.folder, keep=3, num_envs=NUM_ENVS)
    store.load_latest()
    store.save(300, state_at(300), None, store.covered - 40)
    assert store.steps() == [100, 200, 300]


def test_checkpoint_of_the_same_step_is_replaced(two_checkpoints: CheckpointStore):
    memory = FakeMemory(written=two_checkpoints.covered)
    memory.add(3, 3)
    save(two_checkpoints, memory, 200, branch=7)
    loaded = reopened(two_checkpoints).load_latest()
    assert same(loaded.state, state_at(200, branch=7))
    assert two_checkpoints.steps() == [100, 200]
    assert [path.name for path in two_checkpoints.folder.glob("step-*200*")] == ["step-000000000200-2"]


def test_checkpoints_of_another_run_are_not_overwritten(two_checkpoints: CheckpointStore):
    with pytest.raises(CheckpointError, match=r"duetto resume .*run"):
        reopened(two_checkpoints).save(300, state_at(300))
    assert two_checkpoints.steps() == [100, 200]


def test_folder_without_checkpoints_is_an_error(store: CheckpointStore):
    for load in (store.load_latest, store.load_best, lambda: store.load(3)):
        with pytest.raises(CheckpointError, match="no"):
            load()
    store.folder.mkdir(parents=True)
    (store.folder / "model.zip").write_text("another library's")
    with pytest.raises(CheckpointError, match="Duetto run"):
        store.load_latest()
    assert store.steps() == []


def test_checkpoint_removed_during_loading_is_skipped(
    two_checkpoints: CheckpointStore, monkeypatch: pytest.MonkeyPatch
):
    memory = FakeMemory(written=two_checkpoints.covered)
    read = manifest.read_folder

    def read_late(folder: Path):
        monkeypatch.undo()
        for step in (300, 400):
            memory.add(20, 20)
            save(two_checkpoints, memory, step)
        return read(folder)

    monkeypatch.setattr(manifest, "read_folder", read_late)
    loaded = reopened(two_checkpoints).load_latest()
    assert (loaded.step, loaded.problems) == (400, [])


def test_resume_restores_the_best_of_its_checkpoint(two_checkpoints: CheckpointStore):
    """Also if the process is killed before `keep_best`."""
    for step in (60, 120):
        two_checkpoints.save_best(step, state_at(step), {})
    found = reopened(two_checkpoints)  # continues from a checkpoint at 120
    found.keep_best(120)
    found.save_best(180, state_at(180), {})
    found.keep_best(120)  # after another kill
    assert reopened(two_checkpoints).load_best().step == 120


def test_best_checkpoint_is_replaced_and_verified(two_checkpoints: CheckpointStore):
    with pytest.raises(CheckpointError, match="no best parameters yet"):
        two_checkpoints.load_best()
    for step in (100, 200):
        two_checkpoints.save_best(step, state_at(step), {"mean_return": float("inf"), "episodes": 10})
        best = reopened(two_checkpoints).load_best()
        assert (best.step, best.info) == (step, {"mean_return": float("inf"), "episodes": 10})
        assert same(best.state, state_at(step))
    assert len(list((two_checkpoints.folder / "best").iterdir())) == 2
    two_checkpoints.keep_best(200)
    assert list((two_checkpoints.folder / "best").iterdir()) == [best.path]
    assert two_checkpoints.steps() == [100, 200]
    for file in sorted(best.path.iterdir()):
        whole = file.read_bytes()
        flip_bit(file, len(whole) // 2)
        with pytest.raises(CheckpointError, match=file.name):
            two_checkpoints.load_best()
        file.write_bytes(whole)
