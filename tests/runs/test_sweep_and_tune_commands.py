"""`duetto sweep` and `duetto tune` on the command line: options, output, exit codes, and the width of displays."""

from __future__ import annotations

import io
import json
import re
import shlex
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from commands import SMALL, called
from rich.console import Console

from duetto.runs.pool import ProcessPool
from duetto.tools.sweep.display import SweepDisplay
from duetto.tools.sweep.sweep import PlannedRun, Sweep

QUICK = [*SMALL, *shlex.split("--steps 60 --environment-options max_episode_steps=5")]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    return called(capsys)


def test_a_sweep_from_the_command_line(command: Any, tmp_path: Path):
    call = "sweep td3,sac Pendulum-v1 --seeds 1 --jobs 2"
    folder = "sweeps/td3+sac-Pendulum-v1"
    code, out, err = command(f"{call} --dry-run", *QUICK)
    assert (code, err, list(tmp_path.iterdir())) == (0, "", [])
    assert out.splitlines() == [f"{folder}/{name}-Pendulum-v1-s0  new" for name in ("td3", "sac")]
    code, out, err = command(call, *QUICK)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[:2] == ["2 runs of 2 experiments", f"{folder}/"]
    told = sorted(lines[2:6])  # one may be done before the other one starts
    assert [line.split("  ")[:2] for line in told] == [
        [f"{name}-Pendulum-v1-s0", what] for name in ("sac", "td3") for what in ("60 steps", "starts")
    ]
    assert lines[6].startswith("Pendulum-v1, td3: mean return -")
    assert lines[6].endswith(", 1 seed, 60 steps")
    assert lines[-2:] == ["2 complete.", f"{folder}/curves.png"]
    assert all(len(line) <= 80 for line in lines)
    code, out, err = command(f"{call} --json", *QUICK)
    said = json.loads(out)
    assert (code, err.count("starts"), said["stopped"], said["notices"]) == (0, 0, False, [])
    assert [(run["state"], run["step"]) for run in said["runs"]] == [("complete", 60)] * 2
    code, out, err = command(f"{call} --quiet", *QUICK)
    assert (code, out, err) == (0, "", "")


def test_a_failed_run_is_named_and_the_exit_code_says_it(command: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "broken_pendulum.py").write_text(
        "import gymnasium\n"
        "from gymnasium.envs.classic_control import PendulumEnv\n"
        "class Broken(PendulumEnv):\n"
        "    def step(self, action):\n"
        "        raise RuntimeError('the lever is stuck')\n"
        "gymnasium.register('Broken-v0', Broken)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    code, out, err = command(
        "sweep td3 broken_pendulum:Broken-v0,Pendulum-v1 --seeds 1 --output here", *SMALL, "--steps", "60"
    )
    assert code == 1
    name = "td3-broken_pendulum-Broken-v0-s0"
    assert err.splitlines() == [
        "duetto: 1 of 2 runs failed; their logs say why. The same command tries them again.",
        f"  here/{name}: here/logs/{name}.txt",
    ]
    assert f"{name}  failed: " in out
    assert "1 failed, 1 complete." in out
    assert "the lever is stuck" in (tmp_path / "here" / "logs" / f"{name}.txt").read_text()


def test_a_study_from_the_command_line_and_a_run_from_its_preset(command: Any, tmp_path: Path):
    (tmp_path / "search.yaml").write_text("tau: {low: 0.01, high: 0.1, log: true}\ndiscount: auto\n")
    call = "tune td3 Pendulum-v1 --trials 2 --seeds 1 --search search.yaml --search-only"
    code, out, err = command(call, *QUICK)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "td3 on Pendulum-v1, torch on cpu, around preset Pendulum-v1: 2 trials of 1 seed, 60 steps each"
    assert lines[1:3] == ["searched: discount, tau", "studies/td3-Pendulum-v1/"]
    assert lines[3].startswith("trial   0  -")
    assert lines[3].endswith("  best so far")
    assert lines[4] == "          discount 0.98, tau 0.01"
    assert "2 trials: 2 complete." in lines
    assert "evaluate it on new ones with --preset." in out
    code, out, err = command(f"{call} --json", *QUICK)
    said = json.loads(out)
    assert (code, len(said["trials"]), said["stopped"], said["notices"]) == (0, 2, False, [])
    assert said["preset"] == f"{tmp_path}/studies/td3-Pendulum-v1/best.yaml"
    code, out, err = command(
        f"train td3 Pendulum-v1 --preset {said['preset']} --dry-run --backend torch --device cpu --hidden 8"
    )
    assert (code, err) == (0, "")
    assert f"\n  tau: {said['best']['options']['tau']}\n" in out
    assert "\n  batch_size: 8\n" in out  # given a value in the study
    assert "\n  - 8\n" in out  # explicit options win


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sweep td3", "duetto sweep td3 needs ENVIRONMENT[,ENVIRONMENT ...]."),
        ("sweep td3 --steps 10", "duetto sweep td3 needs ENVIRONMENT[,ENVIRONMENT ...]."),
        ("sweep td3 Pendulum-v1 --seed 3", "duetto sweep td3 has no option --seed. Did you mean --seeds?"),
        ("sweep td3 Pendulum-v1 --seeds x", "seeds is 'x'; it must be how many"),
        ("sweep td3 Pendulum-v1 --jobs 0", "jobs is 0"),
        ("sweep td3,td4 Pendulum-v1", "There is no algorithm 'td4'. Did you mean 'td3'?"),
        ("sweep td3,dqn Pendulum-v1", "dqn needs"),
        ("sweep td3 Pendulum-v1 --gamma 0.9", "Did you mean --discount"),
        ("tune td3 Pendulum-v1 --search none.yaml", "The search file none.yaml cannot be read"),
        ("tune td3 Pendulum-v1 --trials 0", "trials is 0"),
        ("tune td4 Pendulum-v1", "There is no algorithm 'td4'. Did you mean 'td3'?"),
        ("tune td3 CartPole-v1", "td3 needs a continuous action space (Box)"),
        ("tune td3 Pendulum-v1 --gamma 0.9", "Did you mean --discount"),
        ("tune td3 Pendulum-v1 --evaluate-every 0", "a study compares evaluations"),
        ("tune td3 Pendulum-v1 --preset none.yaml", "The presets in none.yaml cannot be read"),
    ],
)
def test_mistakes_get_a_sentence_and_leave_nothing(command: Any, tmp_path: Path, text: str, words: str):
    code, out, err = command(text)
    assert (code, out) == (2, "")
    assert words in err
    assert list(tmp_path.iterdir()) == []


def test_without_optuna_a_sentence_says_what_to_install(command: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    code, _, err = command("tune td3 Pendulum-v1")
    assert code == 2
    assert err.startswith("duetto: Tuning needs Optuna. Install: pip install ")
    assert list(tmp_path.iterdir()) == []


def test_a_study_keeps_options_that_are_given_however_they_are_written(command: Any):
    code, out, _ = command(
        "tune td3 Pendulum-v1 --tau 0.1 --no-twin-critic --batch_size=8 --trials 1 --seeds 1", *QUICK
    )
    assert code == 0
    searched = out.partition("searched: ")[2].partition("\n")[0].split(", ")
    assert "discount" in searched
    assert not {"tau", "twin_critic", "batch_size", "hidden"} & {*searched}


# ---------------------------------------------------------------------------------------------------- displays
def planned(name: str, state: Any, step: int, mean_return: float | None = None) -> PlannedRun:
    config: Any = SimpleNamespace(run=SimpleNamespace(steps=1_000_000))
    job: Any = SimpleNamespace(name=name, folder=Path("sweeps/x") / name, config=config)
    run = PlannedRun(job, state, step, mean_return)
    run.started = time.monotonic() - 60
    run.update = lambda: None  # type: ignore[method-assign] # it reads the run's folder, and there is none
    return run


def test_the_runs_of_a_sweep_fit_a_terminal():
    runs = [
        planned("td3-HalfCheetah-v5-s0", "working", 123_456, 4321.0),
        planned("crossq-with-a-long-name-and-more-of-it-HalfCheetah-v5-s12", "working", 1_000, -0.25),
        planned("sac-HalfCheetah-v5-s0", "complete", 1_000_000, 9_000.0),
        planned("sac-HalfCheetah-v5-s1", "failed", 10),
        *[planned(f"ppo-Hopper-v5-s{seed}", "working", 0) for seed in range(20)],
    ]
    sweep = Sweep(Path("sweeps/x"), [], ProcessPool(1))
    sweep.runs, sweep.started = runs, time.monotonic() - 60
    out = io.StringIO()
    display = SweepDisplay(Console(file=out, width=80, force_terminal=True, color_system=None, legacy_windows=False))
    display.announce(sweep)
    out.truncate(out.seek(0))
    display._console.print(display._progress.get_renderable())
    lines = out.getvalue().splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert len(lines) == 13
    assert lines[0].startswith("td3-HalfCheetah-v5-s0 ")
    assert re.search(" 123,456/1,000,000 +4,321 ", lines[0])
    assert lines[1].startswith("crossq-with-a-long-name")
    assert len({line.rindex("-:--:--") for line in lines[:-1] if "-:--:--" in line}) == 1  # one under the other
    assert "1/24 runs" in lines[-1]
    assert "1 failed" in lines[-1]
