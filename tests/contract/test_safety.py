"""The promises of SECURITY.md: loading a run folder runs no code from it."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contract_cases import Runs

import duetto

pytest.importorskip("torch")

Command = Callable[..., Any]
OBS = np.zeros(3, np.float32)


@pytest.fixture
def copied(trained: Runs, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained("TD3").path, tmp_path / "copied"))


def files(run: Path) -> list[Path]:
    """Return the files of the last checkpoint."""
    newest = max((run / "checkpoints").glob("step-*"))
    return [path for path in newest.rglob("*") if path.is_file()]


def test_no_pickle_is_written_or_read(copied: Path, monkeypatch: pytest.MonkeyPatch):
    texts = (".yaml", ".jsonl", ".csv", ".json", ".safetensors", ".lock")
    others = [path for path in copied.rglob("*") if path.is_file() and not path.name.endswith(texts)]
    assert all("tfevents" in path.name for path in others)

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a pickle was read")

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    assert duetto.load(copied).act(OBS).shape == (1,)


def test_changed_byte_in_checkpoint_is_detected(copied: Path):
    for path in files(copied):
        content = path.read_bytes()
        middle = len(content) // 2
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
        with pytest.raises(duetto.DuettoError):
            duetto.load(copied, checkpoint=40)
        path.write_bytes(content)
    assert duetto.load(copied, checkpoint=40).step == 40


def test_links_in_run_folder_are_not_followed(copied: Path, command: Command, tmp_path: Path):
    outside = tmp_path / "outside"
    outside.mkdir()
    for path in files(copied):
        target = Path(shutil.move(path, outside / path.name))
        path.symlink_to(target)
        with pytest.raises(duetto.DuettoError):
            duetto.load(copied, checkpoint=40)
        path.unlink()
        shutil.move(target, path)
    mine = outside / "mine"
    mine.write_text("mine")
    for name in ("metrics.jsonl", "evaluations.csv", "config.yaml"):
        (copied / name).unlink()
        (copied / name).symlink_to(mine)
    command(f"resume {copied} --steps 60 --quiet")
    assert mine.read_text() == "mine"


def test_unsigned_run_folder_runs_no_code_without_trust(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The user who reads the run has another key than the user who started it."""
    code = """
from pathlib import Path
import gymnasium

def make(**options):
    Path(__file__).with_name("ran").touch()
    return gymnasium.make("Pendulum-v1", max_episode_steps=15, **options)
"""
    (tmp_path / "mine.py").write_text(code)
    monkeypatch.setenv("DUETTO_KEY_FILE", str(tmp_path / "their key"))
    options = (
        "--steps 20 --random-steps 10 --backend torch --device cpu --hidden 8 --evaluate-every 0 --quiet --name theirs"
    )
    assert command(f"train td3 ./mine.py:make {options}").code == 0
    assert command("evaluate runs/theirs --episodes 1").code == 0
    (tmp_path / "ran").unlink()
    monkeypatch.setenv("DUETTO_KEY_FILE", str(tmp_path / "my key"))
    for text in ("evaluate runs/theirs --episodes 1", "resume runs/theirs --steps 30", "video runs/theirs"):
        code, _, err = command(text)
        assert code != 0
        assert "trust" in err
    assert duetto.load("runs/theirs").act(OBS).shape == (1,)
    assert not (tmp_path / "ran").exists()
    assert command("evaluate runs/theirs --episodes 1 --trust").code == 0
    assert (tmp_path / "ran").exists()
