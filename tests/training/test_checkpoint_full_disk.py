import os
from pathlib import Path

import numpy as np
import pytest
from fake_disk import FullOS
from fake_run import has_all_rows, restart, run_at_200, save, state_at

from duetto.errors import CheckpointError
from duetto.storage import atomic_io
from duetto.storage.checkpoint import CheckpointStore


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("room", [0, 1, 150, 400, 700, 1000])
def test_a_full_disk_costs_nothing_but_the_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int):
    folder = tmp_path / "td3" / "checkpoints"
    folder.parent.mkdir()
    store, memory = run_at_200(folder)
    before, covered = contents(folder), store.covered
    memory.add(5, 5)
    for save_it in (lambda: save(store, memory, 300), lambda: store.save_best(300, state_at(300), {})):
        monkeypatch.setattr(atomic_io, "os", FullOS(min(room, 300)))
        with pytest.raises(
            CheckpointError, match=r"No space left .* needs 0\.1 MB. Free some .* duetto resume .*/td3$"
        ):
            save_it()
        assert contents(folder) == before
        assert store.covered.tolist() == covered.tolist()
    monkeypatch.setattr(atomic_io, "os", os)
    memory.add(3, 1)
    save(store, memory, 400)
    assert has_all_rows(restart(folder).load_latest(), memory.written, memory.rows)


def test_the_error_says_how_much_room_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(atomic_io, "os", FullOS(10**6))
    with pytest.raises(CheckpointError, match=r"needs 2\.0 MB"):
        CheckpointStore(tmp_path).save(1, {"a": np.zeros(250_000)})
