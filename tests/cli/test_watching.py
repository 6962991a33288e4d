"""Options of callbacks (--stop-at-return, --time-limit): the command prints why a run stopped and how to continue."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import SMALL, Command

RUN = "runs/td3-Pendulum-v1-s0"


def test_stop_at_return_ends_run_and_prints_resume_command(duetto: Command, tmp_path: Path):
    out = duetto("train", "td3", "Pendulum-v1", *SMALL, "--steps", "80", "--stop-at-return", "-10000").printed()
    first, second = out.splitlines()[-2:]
    assert first.startswith("The run stops at step 0. The evaluation's mean return, -")
    assert first.endswith("has reached -10000.")
    assert second == f"Stopped at step 0. Continue with: duetto resume {RUN}"
    assert duetto("resume", RUN).out.splitlines()[-2].startswith("80 steps and")


def test_time_limit_ends_train_and_resume(duetto: Command, tmp_path: Path):
    out = duetto("train", "td3", "Pendulum-v1", *SMALL, "--steps", "80", "--time-limit", "1e-9", "--quiet").out
    said = "It has reached its time limit of 1e-09 seconds. Resume it with a longer limit or none."
    assert out == f"The run stops at step 1. {said}\n"
    again = json.loads(duetto("resume", RUN, "--time-limit", "1e-9", "--json").out)
    assert (again["step"], again["stopped"], again["notices"]) == (2, True, [f"The run stops at step 2. {said}"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--time-limit", "-3"], "--time-limit is -3.0; it must be more than 0."),
        (["--video-every", "0"], "--video-every is 0; it must be at least 1."),
        (["--stop-at-return", "nan"], "--stop-at-return is nan; it must be a number."),
        (["--track"], "--track needs a value: TRACKER."),
        (
            ["--track", "nobody"],
            "There is no tracker 'nobody'. There are: wandb, mlflow, trackio; or give a duetto.trackers.Tracker.",
        ),
    ],
)
def test_mistakes_in_callback_options_leave_no_folder(
    duetto: Command, tmp_path: Path, options: list[str], message: str
):
    code, _, err = duetto("train", "td3", "Pendulum-v1", *SMALL, "--steps", "80", *options)
    assert (code, err) == (2, f"duetto: {message}\n")
    assert not (tmp_path / "runs").exists()


def test_watch_without_human_render_mode_suggests_video(duetto: Command, tmp_path: Path):
    (tmp_path / "blind.py").write_text(
        "import gymnasium\nfrom gymnasium.envs.classic_control import PendulumEnv\n"
        "class Blind(PendulumEnv):\n    metadata = {'render_modes': ['rgb_array']}\n"
        "def make(render_mode=None):\n    return gymnasium.wrappers.TimeLimit(Blind(render_mode), 20)\n"
    )
    assert duetto("train", "td3", "./blind.py:make", *SMALL, "--steps", "20", "--name", "blind", "--quiet").code == 0
    code, out, err = duetto("watch", "runs/blind")
    assert (code, out) == (2, "")
    assert "has no window: human is not among its render modes (rgb_array)." in err
    assert "duetto video RUN" in err
