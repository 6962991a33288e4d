"""`duetto tune` on the command line: its options, its words, and what it leaves for `duetto train`."""

from __future__ import annotations

import io
import json
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from commands import SMALL, called
from rich.console import Console

from duetto.algorithms import ALGORITHMS, TD3
from duetto.runs.spec import RunSpec
from duetto.storage.config import RunOptions
from duetto.tools.cli.tune import given
from duetto.tools.tune.display import StudyDisplay
from duetto.tools.tune.plan import Plan
from duetto.tools.tune.sampler import FinishedTrial
from duetto.tools.tune.space import space

QUICK = [*SMALL, *shlex.split("--steps 60 --environment-options max_episode_steps=5")]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    return called(capsys)


def test_a_study_from_the_command_line_and_a_run_from_its_preset(command: Any, tmp_path: Path):
    (tmp_path / "search.yaml").write_text("tau: {low: 0.01, high: 0.1, log: true}\ndiscount: auto\n")
    call = "tune td3 Pendulum-v1 --trials 2 --seeds 1 --search search.yaml --search-only"
    code, out, err = command(call, *QUICK)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "td3 on Pendulum-v1, torch on cpu, around preset Pendulum-v1: 2 trials of 1 seed, 60 steps each"
    assert lines[1:3] == ["searched: discount, tau", "studies/td3-Pendulum-v1/"]
    assert lines[3].endswith("The first trial differs from the preset: tau is 0.01 instead of 0.005.")
    assert lines[4].startswith("trial   0  -")
    assert lines[4].endswith("  best so far")
    assert lines[5] == "          discount 0.98, tau 0.01"
    assert "2 trials: 2 complete." in lines
    assert "evaluate it on new ones: duetto train td3 Pendulum-v1 --preset " in out
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


@pytest.mark.parametrize("options", [{}, {"seed": 7, "num_envs": 16}, {"evaluation_episodes": 1}])
def test_the_seed_to_judge_the_best_by_has_other_starts(options: dict[str, Any]):
    """Environments have seeds from the run's on, and evaluations from 100 later on."""
    run = RunOptions(**options)
    config: Any = SimpleNamespace(run=run)
    plan = Plan(RunSpec(TD3(), "Pendulum-v1"), config, {}, (1, 4, 2), True)
    for each in (run.num_envs, run.evaluation_episodes):
        used = {seed + one for seed in (1, 4, 2) for one in range(each)}
        assert not used & {plan.fresh_seed + one for one in range(each)}


@pytest.mark.parametrize(
    ("text", "words"),
    [
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


def test_what_is_given_is_known_however_it_is_written():
    options = shlex.split("--tau 0.1 Pendulum-v1 --no-twin-critic --batch_size=8 --hidden 8 8 --steps 10 --search f")
    assert given(options, TD3) == {"tau", "twin_critic", "batch_size", "hidden"}


def test_help_says_the_options_of_the_search(command: Any):
    overview, own = command("tune --help").out, command("tune td3 --help").out
    assert overview.startswith("usage: duetto tune ALGORITHM ENVIRONMENT [options]")
    assert all(name in overview for name in ALGORITHMS)
    assert own.startswith("usage: duetto tune td3 ")
    assert all(f"--{name} " in own for name in ("trials", "search", "jobs", "preset", "tau", "steps"))


# ---------------------------------------------------------------------------------------------------- the display
def at_work(trials: list[FinishedTrial], name: str = "Pendulum-v1") -> Any:
    config = SimpleNamespace(
        environment=name, preset="default", run=SimpleNamespace(steps=1000, backend="torch", device="cpu")
    )
    plan = SimpleNamespace(center=TD3(), config=config, seeds=(0, 1), space=space(TD3()))
    runs = [SimpleNamespace(evaluations={500: -3.0}), SimpleNamespace(evaluations={})]
    running = SimpleNamespace(number=len(trials), runs=runs)
    sampler = SimpleNamespace(trials=lambda: trials)
    known = {"plan": plan, "trials": 50, "folder": Path("study"), "running": [running], "notices": [], "stopped": False}
    return SimpleNamespace(sampler=sampler, started=0.0, **known)


TRIALS = [
    FinishedTrial(0, "complete", {}, -200.5),
    FinishedTrial(1, "pruned", {}),
    FinishedTrial(2, "complete", {}, -150.25),
    FinishedTrial(3, "failed", {}),
]


@pytest.mark.parametrize("width", [20, 40, 80, 160])
def test_two_lines_fit_a_terminal_of_any_width(width: int):
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=True, color_system=None, legacy_windows=False)
    display = StudyDisplay(console)
    display.announce(at_work(TRIALS))
    out.seek(0)
    out.truncate()
    console.print(display)
    lines = out.getvalue().splitlines()
    assert len(lines) == 2
    assert all(len(line) <= width for line in lines)
    assert "4/50 trials" in lines[0]
    if width >= 80:
        assert lines[0].startswith("td3 Pendulum-v1 ")
        assert lines[1] == "best -150.25 (trial 2)  1 pruned, 1 failed  trial 4: 25%"
