"""A short attack, as `attack.py` makes it at length; and that it finds what it is there to find."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "training"))

import damage
import sandbox
import victims
import yaml
from sandbox import Verdict

from duetto.algorithms import ALGORITHMS
from duetto.errors import DuettoError

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="cases are forked")


def test_nothing_lost_nothing_silent_no_traceback():
    program = [
        sys.executable,
        str(Path(__file__).with_name("attack.py")),
        "--cases",
        "40",
        "--seed",
        "11",
        "--no-jax",
        "--processes",
        "2",
    ]
    program += ["--runs", "td3, torch", "ppo, torch"]
    done = subprocess.run(program, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "40 cases of seed 11, 0 findings" in done.stdout


def test_all_algorithms_are_attacked_on_both_frameworks():
    found = {(victim.backend, victim.algorithm) for victim in victims.VICTIMS.values()}
    assert found == {(backend, name) for backend in ("torch", "jax") for name in ALGORITHMS}


# ---------------------------------------------------------------------------------------------------- it can find
def refuse(place: Path) -> Verdict:
    raise DuettoError("a sentence")


def write_outside(place: Path) -> Verdict:
    (place / "outside" / "mine.txt").write_text("changed")
    return Verdict("worked")


def make_a_key(place: Path) -> Verdict:
    (Path(os.environ["XDG_CONFIG_HOME"]) / "key").write_text("new")
    return Verdict("worked")


def steer(place: Path) -> Verdict:
    print("\x1b[2J")
    return Verdict("worked")


def swallow(place: Path) -> Verdict:
    try:
        raise KeyError("one")
    except KeyError:
        sys.excepthook(*sys.exc_info())
    return Verdict("worked")


CASES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "refused": (refuse, "refused"),
    "outside": (write_outside, "outside"),
    "settings": (make_a_key, "outside"),
    "traceback": (lambda place: {}["key"], "traceback"),
    "printed": (swallow, "traceback"),
    "memory": (lambda place: bytes(5 << 30), "traceback"),
    "died": (lambda place: os._exit(3), "died"),
    "shown": (steer, "shown"),
}


@pytest.mark.filterwarnings("ignore")  # of forks: the child only does what stands above
@pytest.mark.parametrize("name", CASES)
def test_a_case_that_does_wrong_is_seen(name: str, tmp_path: Path):
    case, outcome = CASES[name]
    assert sandbox.attempt(tmp_path / "case", case).outcome == outcome


@pytest.mark.filterwarnings("ignore")
def test_a_case_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sandbox, "LIMIT", 0.2)
    assert sandbox.attempt(tmp_path / "case", lambda place: time.sleep(60)).outcome == "hung"


TRUTH = {"act last": {"step": 9}, "resumed": {"step": 60}, "steps": [40]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "home" / "run"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("run: {steps: 60, seed: 0}\n")
    (folder / "metrics.jsonl").write_text('{"step": 20}\n{"step": 40}\nhalf')
    (folder / "notes.txt").write_text("mine")
    return folder


def drop_a_line(folder: Path) -> victims.Seen:
    (folder / "metrics.jsonl").write_text('{"step": 40}\n')
    return {"step": 60}, []


def drop_a_file_and_refuse(folder: Path) -> victims.Seen:
    (folder / "notes.txt").unlink()
    raise DuettoError("a sentence")


def set_aside(folder: Path) -> victims.Seen:
    (folder / "before").mkdir()
    (folder / "metrics.jsonl").rename(folder / "before" / "metrics.jsonl")
    return {"step": 60}, []


def change_a_free_option(folder: Path) -> victims.Seen:
    (folder / "config.yaml").write_text("run: {steps: 61, seed: 0}\n")
    return {"step": 61}, []


@pytest.mark.parametrize(
    ("reading", "read", "outcome"),
    [
        ("act last", lambda folder: ({"step": 9}, []), "the same"),
        ("act last", lambda folder: ({"step": 8}, []), "silent"),
        ("act last", lambda folder: ({"step": 8}, ["something else is damaged"]), "silent"),
        ("act last", lambda folder: ({"step": 8}, ["state.json is damaged"]), "said"),
        ("act last", drop_a_file_and_refuse, "lost"),
        ("resumed", drop_a_line, "lost"),
        ("resumed", set_aside, "the same"),
        ("resumed", change_a_free_option, "free"),
    ],
)
def test_the_verdict(folder: Path, reading: str, read: Callable[[Path], victims.Seen], outcome: str):
    original = yaml.safe_load((folder / "config.yaml").read_text())
    assert damage.judge(folder, reading, read, TRUTH, {"state.json"}, original).outcome == outcome
