"""Relative paths mean the working directory of the call, wherever the process goes later."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from line_environment import Line
from small_runs import OPTIONS, small, train

import duetto
from duetto.runs.run import Run


class Wanderer(Line):
    """It changes the working directory as it is made, and at every reset."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(render_mode=render_mode)
        os.chdir("/")

    def reset(self, **how: Any) -> Any:
        os.chdir("/")
        return super().reset(**how)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("environment", [Line, Wanderer])
def test_a_run_is_read_and_resumed_after_the_working_directory_changed(here: Path, environment: Any):
    run = duetto.train(small(), environment, runs_dir="runs", name="run", **OPTIONS)
    os.chdir("/")
    assert run.path == here / "runs" / "run"
    assert run.metrics()[-1]["step"] == 200
    assert run.evaluate(episodes=1).lengths.tolist() == [10]
    os.chdir(here)
    run = Run("runs/run", environment=environment)
    assert run.video("film.mp4", frames="frames") == here / "film.mp4"
    assert len(list((here / "frames").iterdir())) == 10
    os.chdir(here)
    assert Run("runs/run", environment=environment).resume(240).evaluations()[-1]["step"] == 240


def test_seeds_and_the_run_that_they_begin_with(here: Path):
    first = train(Path("runs"), environment=Line, steps=60)
    os.chdir(here)
    _, second = duetto.train(
        small(), Wanderer, seeds=(1, 2), runs_dir="others", from_run=f"runs/{first.path.name}", **OPTIONS
    )
    assert second.path.parent == here / "others"
    assert second.config.began_from["run"] == str(here / "runs" / first.path.name)


@pytest.mark.parametrize("tool", ["sweep", "tune"])
def test_a_sweep_and_a_study(here: Path, tool: str):
    how: dict[str, Any] = OPTIONS | {"seeds": 1, "steps": 60, "evaluate_every": 30, "output": "found"}
    if tool == "sweep":
        duetto.sweep({"small": small()}, Wanderer, **how)
    else:
        duetto.tune(small(), Wanderer, trials=1, search={"tau": "auto"}, search_only=True, **how)
    assert list((here / "found").glob("**/config.yaml"))
