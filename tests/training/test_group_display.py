"""What a person sees of seeds side by side: one run's lines, of all of them."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
from line_environment import Line
from rich.console import Console
from small_runs import OPTIONS, small

from duetto.runs.parallel_seeds import start_many
from duetto.runs.spec import RunSpec
from duetto.storage.config import RunOptions
from duetto.training import progress
from duetto.training.progress import ProgressDisplay


def shown(tmp_path: Path, terminal: bool, also: Any = (), **options: Any) -> str:
    console = Console(record=True, force_terminal=terminal, width=140, file=io.StringIO())
    trained(tmp_path, ProgressDisplay(console), also, **options)
    return console.export_text()


def trained(tmp_path: Path, display: ProgressDisplay, also: Any, **options: Any) -> None:
    with display:
        run_options = RunOptions(**OPTIONS | {"checkpoint_every": 0} | options)
        spec = RunSpec(small(), Line, run_options, runs_dir=tmp_path)
        start_many(spec, (0, 1, 4), lambda: [display, *also], display.announce)


def test_evaluations_are_told_of_all_at_once(tmp_path: Path):
    text = shown(tmp_path, terminal=False, steps=70)
    found = re.findall(r"^step +(\d+)  evaluations -[\d.]+ ± [\d.]+ over 3 seeds$", text, re.MULTILINE)
    assert found == ["0", "60", "70"]


def test_elsewhere_a_line_now_and_then_is_of_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(progress, "REFRESH_SECONDS", 0.0)
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    text = shown(tmp_path, terminal=False, steps=70)
    assert re.search(r"^step +70  [\d,]+ steps/s of all seeds  evaluation -[\d.]+ ± [\d.]+", text, re.MULTILINE)
