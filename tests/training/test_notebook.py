"""In a notebook, one output that changes, and lines below it. IPython itself is not there: what it is asked for is."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from line_environment import Line
from rich.console import Console
from small_runs import OPTIONS, SMALL, train

import duetto
from duetto.errors import UsageError
from duetto.runs import api
from duetto.runs import run as run_module
from duetto.tools.sweep import api as sweeping
from duetto.tools.tune import api as tuning
from duetto.training import progress


class Notebook:
    """Outputs of a cell, each with all that it showed, one after another; and what was printed."""

    def __init__(self) -> None:
        self.outputs: list[list[str]] = []
        self._written = io.StringIO()
        self.console = Console(force_jupyter=True, file=self._written, width=100)

    def display(self, lines: Any, display_id: bool) -> SimpleNamespace:
        assert display_id
        seen = [plain(lines)]
        self.outputs.append(seen)
        return SimpleNamespace(update=lambda changed: seen.append(plain(changed)))

    @property
    def printed(self) -> str:
        return self._written.getvalue()


def plain(output: Any) -> str:
    found = output._repr_mimebundle_(include=(), exclude=())
    assert found["text/html"].startswith("<pre")
    return found["text/plain"].strip()


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Notebook:
    made, module = Notebook(), ModuleType("IPython.display")
    vars(module)["display"] = made.display
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    for one in (api, run_module, sweeping, tuning):
        monkeypatch.setattr(one, "Console", lambda: made.console)
    return made


def test_a_run_has_one_output_and_a_line_for_each_evaluation(
    tmp_path: Path, notebook: Notebook, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(progress, "REFRESH_SECONDS", 0.0)
    run = train(tmp_path, environment=Line, steps=120)
    [seen] = notebook.outputs
    assert "making environments and networks" in seen[0] + seen[1]
    assert len({line for line in seen if "/120" in line}) > 10
    assert "120/120" in seen[-1]
    assert "evaluation" in seen[-1]
    lines = notebook.printed.splitlines()
    assert lines[0] == "td3 on Line, torch on cpu, seed 0, preset default, 120 steps"
    assert [line.split()[1] for line in lines if line.startswith("step ")] == ["0", "60", "120"]
    assert lines[-1] == f"See it: duetto video {run.path}"
    run.resume(steps=140)
    assert "140/140" in notebook.outputs[1][-1]
    assert len(notebook.outputs) == 2


def test_nothing_is_left_of_what_failed_before_it_began(tmp_path: Path, notebook: Notebook):
    with pytest.raises(UsageError, match="no room"):
        train(tmp_path, environment=failing, steps=20)
    assert notebook.outputs[0][-1] == ""


def failing() -> Any:
    raise ValueError("no room")


def test_without_progress_a_notebook_shows_nothing(tmp_path: Path, notebook: Notebook):
    train(tmp_path, environment=Line, steps=20, progress=False)
    assert notebook.outputs == []
    assert notebook.printed == ""


def test_seeds_a_sweep_and_a_study_have_one_output_each(tmp_path: Path, notebook: Notebook):
    options: dict[str, Any] = OPTIONS | SMALL | {"steps": 40, "evaluate_every": 20}
    duetto.train("td3", Line, seeds=[0, 1], runs_dir=tmp_path, **options)
    assert "80/80" in notebook.outputs[0][-1]
    duetto.sweep("td3", "Pendulum-v1", seeds=[0], output=tmp_path / "sweep", **options)
    assert any("0/1 runs" in lines for lines in notebook.outputs[1])
    assert notebook.outputs[1][-1] == ""  # its table stands below
    assert "1 complete." in notebook.printed
    duetto.tune("td3", "Pendulum-v1", trials=1, seeds=1, output=tmp_path / "study", **options)
    assert any("trial 0" in lines for lines in notebook.outputs[2])
    assert "1 trials: 1 complete." in notebook.printed
    assert len(notebook.outputs) == 3
