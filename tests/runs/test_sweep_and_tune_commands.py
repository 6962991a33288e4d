"""`duetto sweep` and `duetto tune` on the command line: options, output and exit codes."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from commands import SMALL

QUICK = [*SMALL, *shlex.split("--steps 60 --environment-options max_episode_steps=5")]


@pytest.fixture(autouse=True)
def empty_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)


def test_sweep_command_prints_runs_and_json(command: Any, tmp_path: Path):
    call = "sweep td3,sac Pendulum-v1 --seeds 1 --jobs 2"
    folder = "sweeps/td3+sac-Pendulum-v1"
    code, out, err = command(f"{call} --dry-run", *QUICK)
    assert (code, err, list(tmp_path.iterdir())) == (0, "", [])
    assert out.splitlines() == [f"{folder}/{name}-Pendulum-v1-s0  new" for name in ("td3", "sac")]
    code, out, err = command(call, *QUICK)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[:2] == ["2 runs of 2 experiments", f"{folder}/"]
    told = sorted(lines[2:6])  # one run may end before the other starts
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


def test_sweep_names_failed_runs_and_exits_with_1(command: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
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


def test_tune_command_writes_a_preset_for_train(command: Any, tmp_path: Path):
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
    assert "\n  batch_size: 8\n" in out  # was a fixed option of the study
    assert "\n  - 8\n" in out  # explicit options win


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sweep td3", "duetto sweep td3 needs ENVIRONMENT[,ENVIRONMENT ...]."),
        ("sweep td3 Pendulum-v1 --seed 3", "duetto sweep td3 has no option --seed. Did you mean --seeds?"),
        ("sweep td3 Pendulum-v1 --seeds x", "seeds is 'x'; it must be a number of seeds"),
        ("sweep td3,td4 Pendulum-v1", "There is no algorithm 'td4'. Did you mean 'td3'?"),
        ("sweep td3,dqn Pendulum-v1", "dqn needs"),
        ("sweep td3 Pendulum-v1 --gamma 0.9", "Did you mean --discount"),
        ("tune td3 Pendulum-v1 --search none.yaml", "The search file none.yaml cannot be read"),
        ("tune td3 Pendulum-v1 --trials 0", "trials is 0"),
        ("tune td4 Pendulum-v1", "There is no algorithm 'td4'. Did you mean 'td3'?"),
        ("tune td3 CartPole-v1", "td3 needs a continuous action space (Box)"),
        ("tune td3 Pendulum-v1 --evaluate-every 0", "a study compares evaluations"),
    ],
)
def test_command_mistakes_are_refused_before_writing(command: Any, tmp_path: Path, text: str, words: str):
    code, out, err = command(text)
    assert (code, out) == (2, "")
    assert words in err
    assert list(tmp_path.iterdir()) == []
