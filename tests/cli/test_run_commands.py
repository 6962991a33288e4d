"""`duetto resume`, `evaluate`, `video` and `list`."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from commands import Command

from duetto import install_hint
from duetto.algorithms import ALGORITHMS
from duetto.environments import FAMILIES
from duetto.install_hint import install
from duetto.presets import presets
from duetto.runs.run import Run


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """Return a copy of the run, which a test may change."""
    return shutil.copytree(trained, tmp_path / "run")


def steps(run: Path) -> list[int]:
    return [int(path.name.split("-")[1]) for path in sorted(run.glob("checkpoints/step-*"))]


# ---------------------------------------------------------------------------------------------------- resume
def test_resume_continues_to_more_steps(duetto: Command, run: Path):
    code, out, err = duetto("resume", run, "--steps", "90")
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert lines[0] == "td3 on Pendulum-v1, torch on cpu, seed 0, preset Pendulum-v1, 90 steps"
    assert lines[1:3] == ["run/", "Resuming at step 60."]
    assert lines[-1] == "See it: duetto video run"
    assert steps(run) == [60, 90]
    assert [line["step"] for line in Run(run).metrics()][-3:] == [70, 80, 90]


def test_resume_of_a_finished_run_has_nothing_to_do(duetto: Command, run: Path):
    out = duetto("resume", run).done().out
    assert f"All 60 steps are done. To continue: duetto resume {run.name} --steps N" in out
    assert steps(run) == [30, 60]


@pytest.mark.parametrize("command", ["resume", "evaluate", "video", "plot", "report", "table"])
def test_commands_refuse_a_folder_that_is_no_run(duetto: Command, command: str, tmp_path: Path):
    assert duetto(command, tmp_path) == (2, "", f"duetto: {tmp_path} is no run folder: it has no config.yaml.\n")
    code, _, err = duetto(command)
    assert code == 2
    assert err == f"duetto: duetto {command} needs RUN. See duetto {command} --help.\n"


# ---------------------------------------------------------------------------------------------------- divergence


# ---------------------------------------------------------------------------------------------------- evaluate
def test_evaluate_prints_every_episode(duetto: Command, trained: Path):
    out = duetto("evaluate", trained, "--episodes", "3", "--checkpoint", "30").printed()
    returns = [
        float(number) for number in re.findall(r"^episode +\d  return +(-[\d.]+)  steps    200$", out, re.MULTILINE)
    ]
    assert len(returns) == 3
    mean, std, count = re.findall(
        r"^mean return (-[\d.]+) ± ([\d.]+) over (\d) episodes$", out.replace(",", ""), re.MULTILINE
    )[0]
    assert float(mean) == pytest.approx(np.mean(returns), abs=0.06)
    assert float(std) == pytest.approx(np.std(returns), abs=0.06)
    assert count == "3"
    assert duetto("evaluate", trained, "--episodes", "3", "--checkpoint", "30").out == out
    assert duetto("evaluate", trained, "--episodes", "3", "--checkpoint", "30", "--seed", "9").out != out


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        ("--checkpoint 17", 1, "has no checkpoint at step 17. It has checkpoints at 30, 60."),
        ("--checkpoint first", 2, "duetto: checkpoint is 'first'; it must be last, best or a step."),
        ("--episodes 0", 2, "duetto: episodes is 0; it must be at least 1."),
        ("--episodes many", 2, "duetto: --episodes is 'many'; it must be a whole number."),
        ("--zzz", 2, "duetto evaluate has no option --zzz."),
    ],
)
def test_mistakes_in_evaluate_call_are_reported(duetto: Command, trained: Path, options: str, code: int, sentence: str):
    result = duetto("evaluate", trained, *options.split())
    assert result.code == code
    assert sentence in result.err


# ---------------------------------------------------------------------------------------------------- video
def test_video_is_written(duetto: Command, run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    pytest.importorskip("pygame")
    imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    code, out, _ = duetto("video", run)
    path = run / "videos" / "step-000000000060.mp4"
    assert (code, out) == (0, f"{path}\n")
    assert imageio_ffmpeg.count_frames_and_secs(str(path)) == (200, pytest.approx(200 / 30, abs=0.1))
    code, out, _ = duetto("video", run, "--output", tmp_path / "mine.mp4", "--checkpoint", "30", "--seed", "1")
    assert (code, out) == (0, f"{tmp_path}/mine.mp4\n")
    assert (tmp_path / "mine.mp4").stat().st_size > 1000


@pytest.mark.parametrize(
    ("output", "code", "sentence"),
    [
        ("/proc/a.mp4", 1, "The video /proc/a.mp4 cannot be written: No such file or directory."),
        ("/x.txt", 2, "/x.txt cannot be the name of a video: end it in .mp4."),
    ],
)
def test_video_that_cannot_be_written_is_reported(
    duetto: Command, run: Path, monkeypatch: pytest.MonkeyPatch, output: str, code: int, sentence: str
):
    pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    ended, out, err = duetto("video", run, "--output", output)
    assert (ended, out, err.splitlines()[-1]) == (code, "", f"duetto: {sentence}")
    assert "ffmpeg" not in err
    assert not Path(output).exists()


@pytest.mark.parametrize(("number", "alone"), [(signal.SIGINT, False), (signal.SIGTERM, True)])
def test_killed_video_command_leaves_no_partial_file(run: Path, number: int, alone: bool):
    """The signal goes to all processes, ffmpeg's too (as from a terminal), or to Python alone."""
    pytest.importorskip("pygame")
    pytest.importorskip("imageio_ffmpeg")
    # A very long episode, so that the video is not finished before the signal.
    text = (run / "config.yaml").read_text("utf-8").replace("options: {}", "options: {max_episode_steps: 10000000}")
    (run / "config.yaml").write_text(text, "utf-8")
    process = subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-m", "duetto", "video", str(run)],
        env=os.environ | {"SDL_VIDEODRIVER": "dummy"},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        while not list((run / "videos").glob(".step-000000000060-*/*.mp4")):
            assert process.poll() is None, process.stderr and process.stderr.read()
            time.sleep(0.02)
        (os.kill if alone else os.killpg)(process.pid, number)
        _, err = process.communicate(timeout=60)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    left = list((run / "videos").iterdir())
    assert (err, process.returncode, left) == ("duetto: interrupted.\n", 128 + number, [])


def test_evaluate_shows_progress_on_a_terminal(duetto: Command, run: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    code, out, err = duetto("evaluate", run, "--episodes", "1")
    assert code == 0
    assert "evaluating" not in out
    assert re.search(r"evaluating: 0 of 1 episodes done, step \d+ \(\d+ s\)", err)


# ---------------------------------------------------------------------------------------------------- plot
def test_plot_without_matplotlib_names_install_command(duetto: Command, run: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    code, _, err = duetto("plot", run)
    assert (code, err) == (2, f"duetto: Plots need matplotlib. Install: {install('plot')}\n")


# ---------------------------------------------------------------------------------------------------- list
def test_list_fits_on_one_screen(duetto: Command, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "80")
    out = duetto("list").printed()
    lines = [line for line in out.splitlines() if "pip install" not in line]  # commands to copy are not wrapped
    assert max(map(len, lines)) <= 80
    assert len(out.splitlines()) <= 50
    words = set(out.replace(",", " ").split())
    assert {*ALGORITHMS, *(preset for name in ALGORITHMS for preset in presets(name))} <= words
    assert all(family.name in out for family in FAMILIES)


def test_list_names_every_extra(duetto: Command, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(install_hint, "is_installed", lambda name: name not in ("plot", "box2d"))
    listed = json.loads(duetto("list", "--json").out)
    assert set(listed["extras"]) == set(install_hint.names()) - {"all", "dev", "docs"}
    missing = {name: install(name) for name in ("plot", "box2d")}
    assert {name: command for name, command in listed["extras"].items() if command} == missing
    lines = [line for line in duetto("list").out.splitlines() if line.startswith("Install ")]
    assert sorted(lines) == sorted(f"Install {name}: {command}" for name, command in missing.items())
    assert "installed: False" in duetto("list", "environments").out


def test_watch_without_display_is_refused(duetto: Command, run: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("pygame")
    monkeypatch.delenv("SDL_VIDEODRIVER", raising=False)
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    code, out, err = duetto("watch", run)
    assert (code, out) == (2, "")
    assert err.startswith("duetto: Pendulum-v1 cannot be shown in a window without a display")
    code, _, err = duetto("watch", run, "--episodes", "-1")
    assert (code, err.startswith("duetto: episodes is -1; it must be at least 0")) == (2, True)
