"""Forty cases of `attack.py`, and the outcomes that `sandbox.py` reports."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sandbox
import victims
from sandbox import Verdict

from duetto.algorithms import ALGORITHMS
from duetto.errors import DuettoError

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="cases are forked, which Windows cannot do")


def test_forty_attack_cases_have_no_findings():
    options = ["--cases", "40", "--seed", "11", "--no-jax", "--processes", "2", "--runs", "td3, torch", "ppo, torch"]
    program = [sys.executable, str(Path(__file__).with_name("attack.py")), *options]
    done = subprocess.run(program, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "40 cases of seed 11, 0 findings" in done.stdout


def test_all_algorithms_are_attacked_on_both_frameworks():
    found = {(victim.backend, victim.algorithm) for victim in victims.VICTIMS.values()}
    assert found == {(backend, name) for backend in ("torch", "jax") for name in ALGORITHMS}


# ---------------------------------------------------------------------------------------------------- findings
def raise_user_error(place: Path) -> Verdict:
    raise DuettoError("a sentence")


def write_outside(place: Path) -> Verdict:
    (place / "outside" / "mine.txt").write_text("changed")
    return Verdict("worked")


def write_settings(place: Path) -> Verdict:
    (Path(os.environ["XDG_CONFIG_HOME"]) / "key").write_text("new")
    return Verdict("worked")


def print_control_characters(place: Path) -> Verdict:
    print("\x1b[2J")
    return Verdict("worked")


def print_traceback(place: Path) -> Verdict:
    try:
        raise KeyError("one")
    except KeyError:
        sys.excepthook(*sys.exc_info())
    return Verdict("worked")


CASES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "refused": (raise_user_error, "refused"),
    "outside": (write_outside, "outside"),
    "settings": (write_settings, "outside"),
    "traceback": (lambda place: {}["key"], "traceback"),
    "printed": (print_traceback, "traceback"),
    "memory": (lambda place: bytes(5 << 30), "traceback"),
    "died": (lambda place: os._exit(3), "died"),
    "shown": (print_control_characters, "shown"),
}


@pytest.mark.filterwarnings("ignore")  # about forks
@pytest.mark.parametrize("name", CASES)
def test_sandbox_reports_the_outcome_of_a_case(name: str, tmp_path: Path):
    case, outcome = CASES[name]
    assert sandbox.attempt(tmp_path / "case", case).outcome == outcome


@pytest.mark.filterwarnings("ignore")
def test_sandbox_kills_a_hanging_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sandbox, "LIMIT", 0.2)
    assert sandbox.attempt(tmp_path / "case", lambda place: time.sleep(60)).outcome == "hung"
