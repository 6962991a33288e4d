"""A damaged checkpoint is reported, and an older one is loaded."""

import json
import shutil
from pathlib import Path

import pytest
from fake_run import FakeMemory, flip_bit, remembered, reopened, same, save, segment_names, state_at

from duetto.errors import CheckpointError
from duetto.storage import manifest
from duetto.storage.checkpoint import CheckpointStore

FILES = ["state.json", "state.safetensors", "manifest.json", "../memory/segment-000000000002.safetensors"]


@pytest.mark.parametrize("file", FILES)
def test_flipped_bit_in_checkpoint_is_detected(two_checkpoints: CheckpointStore, file: str):
    path = two_checkpoints.folder / "step-000000000200" / file
    whole = path.read_bytes()
    for position in range(0, len(whole), max(len(whole) // 40, 1)):
        flip_bit(path, position)
        loaded = reopened(two_checkpoints).load_latest()
        assert loaded.step == 100
        assert same(loaded.state, state_at(100))
        assert len(loaded.problems) == 1
        assert path.name in loaded.problems[0]
        assert "damaged" in loaded.problems[0]
        path.write_bytes(whole)


@pytest.mark.parametrize("file", FILES)
def test_truncated_checkpoint_file_is_detected(two_checkpoints: CheckpointStore, file: str):
    path = two_checkpoints.folder / "step-000000000200" / file
    whole = path.read_bytes()
    for length in (0, 1, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        assert [path.name in problem for problem in reopened(two_checkpoints).load_latest().problems] == [True]
    path.unlink()
    [problem] = reopened(two_checkpoints).load_latest().problems
    assert f"{path.name} is missing" in problem
    with pytest.raises(CheckpointError, match=f"{path.name} is missing"):
        two_checkpoints.load(200)


def test_error_names_every_damaged_file(two_checkpoints: CheckpointStore):
    flip_bit(two_checkpoints.folder / "memory" / "segment-000000000001.safetensors", 90)  # both checkpoints need it
    (two_checkpoints.folder / "step-000000000200" / "state.json").unlink()
    with pytest.raises(CheckpointError, match=r"(?s)state\.json is missing.*segment-000000000001.* is damaged"):
        reopened(two_checkpoints).load_latest()


def test_segment_damaged_after_loading_is_detected(two_checkpoints: CheckpointStore):
    loaded = two_checkpoints.load_latest()
    flip_bit(two_checkpoints.folder / "memory" / "segment-000000000002.safetensors", 90)
    with pytest.raises(CheckpointError, match="damaged"):
        list(loaded.segments)


@pytest.mark.parametrize("damage", ["state.safetensors", None])
@pytest.mark.parametrize("next_step", [150, 200, 300])
def test_run_continues_from_older_checkpoint(two_checkpoints: CheckpointStore, damage: str | None, next_step: int):
    """It replaces the newer checkpoints, and shares no later segment."""
    store = reopened(two_checkpoints)
    if damage:
        flip_bit(two_checkpoints.folder / "step-000000000200" / damage, 20)
    assert (store.load_latest() if damage else store.load(100)).step == 100
    memory = FakeMemory(branch=1, written=store.covered)
    memory.add(5, 5)
    save(store, memory, next_step, branch=1)
    assert store.steps() == [100, next_step]
    assert segment_names(store) == [f"segment-{n:012}.safetensors" for n in (1, 3)]
    loaded = reopened(store).load_latest()
    assert loaded.problems == []
    assert same(loaded.state, state_at(next_step, branch=1))
    assert [rows[-6:-4] for rows in remembered(loaded)] == [[(0, 9), (1, 10)], [(0, 6), (1, 7)]]


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [("VERSION", 2, "format duetto-checkpoint 2, and this"), ("FORMAT", "x", "the format x 1, and")],
)
def test_other_checkpoint_formats_are_refused(
    two_checkpoints: CheckpointStore, monkeypatch: pytest.MonkeyPatch, name, value, says: str
):
    monkeypatch.setattr(manifest, name, value)
    two_checkpoints.save(300, state_at(300))
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match=says):
        reopened(two_checkpoints).load_latest()


def test_manifest_cannot_name_files_outside_the_checkpoint(two_checkpoints: CheckpointStore, tmp_path: Path):
    (tmp_path / "secret.json").write_text("{}")
    path = two_checkpoints.folder / "step-000000000200" / "manifest.json"
    content = json.loads(path.read_bytes())["content"]
    content["files"][0]["name"] = "../../../secret.json"
    path.write_bytes(manifest.seal(content))
    with pytest.raises(CheckpointError, match="no file of a checkpoint"):
        two_checkpoints.load(200)


def test_renamed_checkpoint_is_detected(two_checkpoints: CheckpointStore):
    shutil.copytree(two_checkpoints.folder / "step-000000000100", two_checkpoints.folder / "step-000000000300")
    loaded = reopened(two_checkpoints).load_latest()
    assert (loaded.step, len(loaded.problems)) == (200, 1)
