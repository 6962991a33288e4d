"""The progress display: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io
import re
import time
from pathlib import Path

import pytest
from line_environment import Line
from rich.console import Console
from small_runs import OPTIONS, AtStart, StopAt, small, train

from duetto.runs.parallel_seeds import start_many
from duetto.runs.run import Run, start
from duetto.runs.spec import RunSpec
from duetto.storage.config import RunOptions
from duetto.training import progress
from duetto.training.progress import ProgressDisplay
from duetto.training.progress import shown as shown_on
from duetto.training.progress_lines import LiveDisplay, say
from duetto.training.trainer import Trainer


def progress_output(tmp_path: Path, terminal: bool, name: str = "shown", **options) -> str:
    """Return the output of a run."""
    console = Console(record=True, force_terminal=terminal, width=140, file=io.StringIO())
    with ProgressDisplay(console) as display:
        spec = RunSpec(small(), Line, RunOptions(**OPTIONS | options), runs_dir=tmp_path, name=name)
        start(spec, [display])
    return console.export_text()


def test_lines_on_a_terminal_break_between_words():
    file = io.StringIO()
    sentence = "3,000 steps are too few, because learning_starts is 25,000. Increase --steps, or lower this option."
    say(Console(file=file, force_terminal=True, width=40, color_system=None), f"{sentence}\n  indented", "yellow")
    lines = file.getvalue().splitlines()
    assert len(lines) == 4
    assert max(map(len, lines)) <= 40
    assert " ".join(lines[:3]) == sentence
    assert lines[3] == "  indented"


def test_output_names_the_run_and_each_evaluation(tmp_path: Path):
    text = progress_output(tmp_path, terminal=False, steps=150, seed=3)
    assert text.startswith(
        "td3 on Line, torch on cpu, seed 3, preset default, 150 steps, random actions in the first 30\n"
        f"{tmp_path}/shown/\nstep         0  evaluation"
    )
    assert "Resuming" not in text
    rows = Run(tmp_path / "shown", environment=Line).evaluations()
    lines = re.findall(r"^step +(\d+)  evaluation (-?[\d.]+) ± 0.0 over 1 episode$", text, re.MULTILINE)
    assert lines == [(f"{row['step']:.0f}", f"{row['mean_return']:.1f}") for row in rows]
    assert [line[0] for line in lines] == ["0", "60", "120", "150"]


def test_progress_without_terminal_prints_periodic_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    monkeypatch.setattr(progress, "REFRESH_SECONDS", 0.0)
    text = progress_output(tmp_path, terminal=False, steps=100)
    pattern = r"^step +99  ([\d,]+) steps/s  evaluation -?\d+\.\d  training -?\d+\.\d  critic loss [\d.e+-]+$"
    [rate] = re.findall(pattern, text, re.MULTILINE)
    assert float(rate.replace(",", "")) > 1


def test_on_a_terminal_progress_is_a_bar_with_a_status_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(progress, "REFRESH_SECONDS", 0.0)
    text = progress_output(tmp_path, terminal=True)
    where, learned = text.splitlines()[-2:]
    assert re.search(r"td3 Line ━+ 200/200 [\d,]+ steps/s 0:00:00 *$", where)
    assert re.search(r"^evaluation -\d+\.\d +training -\d+\.\d +critic loss", learned)


def test_step_rate_excludes_evaluations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A clock that counts 0.5 s for every step and 20 s for every evaluation."""
    console = Console(record=True, force_terminal=False, width=140, file=io.StringIO())
    display = ProgressDisplay(console)
    now = [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    evaluations: list[object] = [None]

    def tick(trainer: Trainer) -> None:
        now[0] += 20.0 if trainer.last_evaluation is not evaluations[0] else 0.5
        evaluations[0] = trainer.last_evaluation
        display.on_step(trainer)

    train(tmp_path, steps=100, callbacks=[AtStart(display.on_start), tick])
    rates = set(re.findall(r"  ([\d,]+) steps/s", console.export_text()))
    assert rates == {"2"}


def test_a_resumed_run_shows_its_step_and_damaged_files(tmp_path: Path):
    run = train(tmp_path, callbacks=[StopAt(130)])
    (run.path / "checkpoints" / "step-000000000130" / "state.json").unlink()
    console = Console(record=True, force_terminal=False, width=60, file=io.StringIO())
    with ProgressDisplay(console) as display:
        run.resume(callbacks=[display])
    text = console.export_text()
    assert "\nResuming at step 120.\n" in text
    damage = f"{run.path}/checkpoints/step-000000000130/state.json is missing."
    assert text.count(damage) == 1
    assert text.index(damage) < text.index("evaluation")


RESULTS = ["evaluation -1,234.5", "training -1,234.5", "critic loss 0.00123"]


class LongNameDisplay(LiveDisplay):
    """A display of a run with a long name."""

    def __init__(self, width: int, file: io.StringIO | None = None) -> None:
        super().__init__(Console(width=width, file=file or io.StringIO(), force_terminal=True, color_system=None))
        self._row("td3 MiniGrid-ObstructedMaze-2Dlhb-v1", 123_456, 1_000_000, note="1,234 steps/s", left="0:11:50")

    def _status(self) -> list[str]:
        return RESULTS


def rendered(display: LiveDisplay) -> list[str]:
    console = display._console
    console.print(display._progress.get_renderable())
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [60, 300])
def test_lines_fit_the_terminal_and_show_steps_and_time_left(width: int):
    where, learned = rendered(LongNameDisplay(width))
    assert max(len(where), len(learned)) <= width
    assert "123,456/1,000,000 " in where
    assert " 0:11:50" in where
    assert "1,234 steps/s" in where
    assert learned.startswith("evaluation -1,234.5")


def test_names_are_shown_without_markup_and_control_characters():
    display = LongNameDisplay(120)
    display._row("[red]sly[/red]\x1b[2J", 1, 2)
    [_, line, _] = rendered(display)
    assert line.startswith("[red]sly[/red]\\x1b[2J ")


def test_cursor_is_restored_after_an_error():
    written = io.StringIO()
    with pytest.raises(KeyboardInterrupt), LongNameDisplay(80, written):
        raise KeyboardInterrupt
    assert written.getvalue().rindex("\x1b[?25h") > written.getvalue().rindex("\x1b[?25l")


def test_a_terminal_shows_an_activity_at_once_and_removes_it(tmp_path: Path):
    written = io.StringIO()
    console = Console(force_terminal=True, width=60, file=written, color_system=None)
    with shown_on(console, "td3 on Line: making environments and networks") as display:
        deadline = time.monotonic() + 5
        while "making environments" not in written.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert "td3 on Line: making environments and networks (0 s)" in written.getvalue()
        run = train(tmp_path, environment=Line, steps=60, callbacks=[display])
        display.finish(run.path)
    assert "evaluating: 0 of 1 episodes" not in written.getvalue().splitlines()[-1]
    assert re.search(r"60 steps and 30 updates in 0:00:\d\d\.\n", written.getvalue())


def test_quiet_prints_only_notices(tmp_path: Path):
    console = Console(record=True, force_terminal=True, width=60, file=io.StringIO())
    with ProgressDisplay(console, quiet=True) as display:
        options = RunOptions(**OPTIONS | {"steps": 20})
        start(RunSpec(small(), Line, options, runs_dir=tmp_path), [display])
        display.finish(tmp_path)
    text = console.export_text()
    assert text.startswith("20 steps are too few")
    assert text.count(". ") <= 2


def test_a_path_is_printed_unchanged():
    console = Console(record=True, force_terminal=True, width=20, file=io.StringIO())
    path = "runs/[bold]a run/with a long name/that is wider than the terminal"
    say(console, path)
    assert console.export_text() == path + "\n"


# ---------------------------------------------------------------------------------------------------- several seeds
def test_progress_lines_cover_all_parallel_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(progress, "REFRESH_SECONDS", 0.0)
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    console = Console(record=True, force_terminal=False, width=140, file=io.StringIO())
    with ProgressDisplay(console) as display:
        options = RunOptions(**OPTIONS | {"checkpoint_every": 0, "steps": 70})
        spec = RunSpec(small(), Line, options, runs_dir=tmp_path)
        start_many(spec, (0, 1, 4), lambda: [display], display.announce)
    text = console.export_text()
    found = re.findall(r"^step +(\d+)  evaluations -[\d.]+ ± [\d.]+ over 3 seeds$", text, re.MULTILINE)
    assert found == ["0", "60", "70"]
    assert re.search(r"^step +70  [\d,]+ steps/s of all seeds  evaluation -[\d.]+ ± [\d.]+", text, re.MULTILINE)
