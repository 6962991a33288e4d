"""The seal of a folder: no change of any byte is silent, old folders are said to have none, and Minari reads both."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import minari
import numpy as np
import pytest
from demo_cases import check_same, check_same_sets, description, episode

from duetto import demonstrations
from duetto.demonstrations import sealing
from duetto.errors import UsageError
from duetto.storage import disk

FILES = ("main_data.hdf5", "manifest.json", "metadata.json")
FLIPS = 28  # of which ten once changed episodes without a word


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return demonstrations.save(tmp_path / "demos", description("pictures"), [episode("pictures", 5, i) for i in (0, 1)])


def older(folder: Path) -> Path:
    """The folder as a Duetto made it that sealed nothing."""
    metadata = json.loads((folder / "metadata.json").read_text())
    metadata["duetto"]["format"] = 1
    (folder / "metadata.json").write_text(json.dumps(metadata))
    (folder / "manifest.json").unlink()
    return folder


def test_every_flipped_bit_is_noticed(folder: Path):
    draw = random.Random(12)
    contents = {name: (folder / name).read_bytes() for name in FILES}
    bits = [(name, bit) for name, data in contents.items() for bit in draw.sample(range(8 * len(data)), FLIPS)]
    for name, bit in bits:
        data = bytearray(contents[name])
        data[bit // 8] ^= 1 << bit % 8
        (folder / name).write_bytes(data)
        with pytest.raises(UsageError, match=r"are damaged .*Record them anew.*duetto demos seal"):
            demonstrations.load(folder)
        (folder / name).write_bytes(contents[name])
    assert len(demonstrations.load(folder)) == 2


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b" "),
    "empty": lambda path: path.write_bytes(b""),
    "deleted": lambda path: path.unlink(),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_every_file_is_sealed(folder: Path, name: str, damage: Callable[[Path], Any]):
    damage(folder / name)
    with pytest.raises(UsageError, match="are damaged"):
        demonstrations.load(folder)


def test_a_seal_of_another_folder(folder: Path, tmp_path: Path):
    other = demonstrations.save(tmp_path / "other", description("pictures"), [episode("pictures", 5, 7)])
    (folder / "manifest.json").write_bytes((other / "manifest.json").read_bytes())
    with pytest.raises(UsageError, match="are damaged"):
        demonstrations.load(folder)


@pytest.mark.parametrize("content", [[], {}, {"version": "x"}, {"version": 1, "format": "duetto-checkpoint"}])
def test_a_manifest_that_is_none(folder: Path, content: Any):
    content = {"content": content, "sha256": ""} if isinstance(content, list) else content
    data = json.dumps(content).encode() if "content" in content else sealing.seal(content)
    (folder / "manifest.json").write_bytes(data)
    with pytest.raises(UsageError, match=r"manifest\.json is not what was written"):
        demonstrations.load(folder)


def test_a_manifest_of_the_future(folder: Path):
    (folder / "manifest.json").write_bytes(sealing.seal({"format": "duetto-demonstrations", "version": 2, "files": []}))
    with pytest.raises(UsageError, match="newer Duetto"):
        demonstrations.load(folder)


def test_an_older_folder_is_read_and_said_to_have_no_seal(folder: Path):
    assert demonstrations.load(folder).notices == []
    found = demonstrations.load(older(folder))
    check_same(found.episodes[1], episode("pictures", 5, 1))
    assert [notice for notice in found.notices if "no seal, so that damage in them goes unnoticed" in notice]
    assert found.notices[0].endswith(f"duetto demos seal {folder}")


def test_an_older_folder_is_sealed(folder: Path):
    before = demonstrations.load(older(folder))
    after = demonstrations.seal(folder)
    assert (after.notices, after.format) == ([], 2)
    check_same_sets(after, before)
    DAMAGE["longer"](folder / "metadata.json")
    with pytest.raises(UsageError, match="are damaged"):
        demonstrations.load(folder)


def test_what_is_no_episode_is_not_sealed(folder: Path):
    older(folder)
    metadata = json.loads((folder / "metadata.json").read_text())
    metadata["duetto"]["lengths"] = [4, 6]
    metadata["duetto"]["seeds"] = [1, 2]
    (folder / "metadata.json").write_text(json.dumps(metadata))
    with pytest.raises(UsageError, match="are damaged"):
        demonstrations.seal(folder)
    assert not (folder / "manifest.json").exists()


@pytest.mark.parametrize("operations", range(8))
def test_a_sealing_that_is_killed_can_be_done_again(folder: Path, operations: int, monkeypatch: pytest.MonkeyPatch):
    older(folder)
    left = iter(range(operations))

    class Mortal:
        """`os`, until the process dies between two operations."""

        def __getattr__(self, name: str) -> Any:
            found = getattr(disk_os, name)
            if name in ("open", "write", "rename") and next(left, None) is None:
                raise KeyboardInterrupt
            return found

    disk_os = disk.os
    with monkeypatch.context() as patched:
        patched.setattr(disk, "os", Mortal())
        with pytest.raises(KeyboardInterrupt):
            demonstrations.seal(folder)
    assert len(demonstrations.seal(folder)) == 2


def test_minari_reads_a_sealed_folder_and_leaves_its_seal(folder: Path):
    dataset = minari.MinariDataset(folder)
    np.testing.assert_array_equal(dataset[0].actions, episode("pictures", 5, 0).action)
    assert len(demonstrations.load(folder)) == 2


def test_a_seal_that_cannot_be_written_is_a_sentence(folder: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    older(folder)
    monkeypatch.setattr(disk, "publish_file", refuse)
    with pytest.raises(demonstrations.writing.DuettoError, match=r"cannot be sealed.*No space"):
        demonstrations.seal(folder)
