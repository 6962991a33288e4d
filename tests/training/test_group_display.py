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
from duetto.training.trainer import Trainer


def shown(tmp_path: Path, terminal: bool, also: Any = (), **options: Any) -> str:
    console = Console(record=True, force_terminal=terminal, width=140, file=io.StringIO())
    trained(tmp_path, ProgressDisplay(console), also, **options)
    return console.export_text()


def trained(tmp_path: Path, display: ProgressDisplay, also: Any, **options: Any) -> None:
    with display:
        run_options = RunOptions(**OPTIONS | {"checkpoint_every": 0} | options)
        spec = RunSpec(small(), Line, run_options, runs_dir=tmp_path)
        start_many(spec, (0, 1, 4), lambda: [display, *also], display.announce_all)


def test_evaluations_are_told_of_all_at_once(tmp_path: Path):
    text = shown(tmp_path, terminal=False, steps=70)
    found = re.findall(r"^step +(\d+)  evaluations -[\d.]+ ± [\d.]+ over 3 seeds$", text, re.MULTILINE)
    assert found == ["0", "60", "70"]


def test_one_that_stopped_is_not_waited_for(tmp_path: Path):
    def stop(trainer: Trainer) -> None:
        if trainer.config.run.seed == 1 and trainer.step == 30:
            trainer.stop("Enough.")

    text = shown(tmp_path, terminal=False, steps=70, also=[stop])
    found = re.findall(r"^step +(\d+)  evaluations .* over (\d) seeds$", text, re.MULTILINE)
    assert found == [("0", "3"), ("60", "2"), ("70", "2")]
    assert "Seed 1: The run stops at step 30. Enough." in text


def test_what_all_say_is_said_once(tmp_path: Path):
    text = shown(tmp_path, terminal=False, steps=10, evaluate_every=0)
    assert text.count("10 steps are too few") == 1


def test_elsewhere_a_line_now_and_then_is_of_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(progress, "REFRESH_SECONDS", 0.0)
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    text = shown(tmp_path, terminal=False, steps=70)
    assert re.search(r"^step +70  [\d,]+ steps/s of all seeds  evaluation -[\d.]+ ± [\d.]+", text, re.MULTILINE)


@pytest.mark.parametrize("width", [40, 80])
def test_no_line_is_wider_than_the_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int):
    """Steps are those of all; what does not fit is left out."""
    monkeypatch.setattr(progress, "REFRESH_SECONDS", 0.0)
    frames: list[list[str]] = []

    def look(trainer: Trainer) -> None:
        console = Console(record=True, width=width, file=io.StringIO())
        console.print(display)
        frames.append(console.export_text().splitlines())

    display = ProgressDisplay(Console(force_terminal=True, file=io.StringIO()))
    trained(tmp_path, display, [look], steps=70)
    where, learned = frames[-1]
    assert max(len(where), len(learned)) <= width
    assert "210/210" in where
    assert re.match(r"evaluation -[\d.]+ ± [\d.]+", learned)
