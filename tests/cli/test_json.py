"""--json is one object on stdout and nothing else there, of every command that has it, whatever else is asked for."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import SMALL, Command

from duetto.cli import COMMANDS

QUICK = [*SMALL, *shlex.split("--steps 60 --environment-options max_episode_steps=5")]
CALLS = [
    "train td3 Pendulum-v1 QUICK",
    "train td3 Pendulum-v1 QUICK --quiet",
    "train td3 Pendulum-v1 QUICK --dry-run",
    "train td3 Pendulum-v1 QUICK --dry-run --quiet",
    "train td3 Pendulum-v1 QUICK --seeds 0,1 --quiet",
    "train td3 Pendulum-v1 QUICK --seeds 0,1 --dry-run",
    "sweep td3,sac Pendulum-v1 QUICK --seeds 2 --dry-run",
    "sweep td3 Pendulum-v1 QUICK --seeds 2 --dry-run --quiet",
    "resume made --steps 70",
    "resume made --steps 70 --quiet",
    "evaluate made --episodes 1",
    "export made",
    "push made somebody/made --episodes 1 --no-video --dry-run",
    "check Pendulum-v1 --steps 50",
]
KINDS = ("train", "sweep", "tune")  # their help is of an algorithm
ELSEWHERE = {"sweep", "tune", "pull"}  # which take processes, and a hub: tests/sweeping, tests/tuning, tests/sharing


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from duetto.cli import main

    folder = tmp_path_factory.mktemp("made")
    with pytest.raises(SystemExit):
        main(["train", "td3", "Pendulum-v1", *QUICK, "--quiet", "--runs-dir", str(folder), "--name", "made"])
    return folder / "made"


def said(text: str) -> dict[str, Any]:
    """The object; JSON has no NaN."""
    [line] = text.splitlines()
    found = json.loads(line, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("call", CALLS)
def test_one_object_and_nothing_else(duetto: Command, made: Path, tmp_path: Path, call: str):
    if " made" in call:
        shutil.copytree(made, tmp_path / "made")
    words = [word for part in call.split() for word in (QUICK if part == "QUICK" else [part])]
    code, out, _ = duetto(*words, "--json")
    assert code == 0
    assert said(out)


def test_every_command_that_has_the_option_is_tried(duetto: Command):
    having = {name for name in COMMANDS if "--json" in duetto(name, *["td3"] * (name in KINDS), "--help").out}
    assert having == {call.split()[0] for call in CALLS} | ELSEWHERE


def test_a_dry_run_says_what_the_text_says(duetto: Command, tmp_path: Path):
    call = ("train", "td3", "Pendulum-v1", *QUICK, "--dry-run")
    planned = said(duetto(*call, "--json").out)
    assert planned | {"command": ""} == yaml.safe_load(duetto(*call).out) | {"command": ""}
    each = said(duetto(*call, "--json", "--seeds", "0,2").out)["runs"]
    assert [one["run"] | {"seed": 0} for one in each] == [planned["run"]] * 2
    assert [one["run"]["seed"] for one in each] == [0, 2]
    sweep = said(duetto("sweep", *call[1:], "--json", "--seeds", "2").out)
    folder = "sweeps/td3-Pendulum-v1"
    runs = [{"path": f"{folder}/td3-Pendulum-v1-s{seed}", "state": "new", "step": 0} for seed in (0, 1)]
    assert sweep == {"folder": folder, "runs": runs}
    assert list(tmp_path.iterdir()) == []
