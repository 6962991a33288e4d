"""--json is one object on stdout and nothing else there, of every command that has it, whatever else is asked for."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import SMALL, Command, write_minari
from gymnasium.envs.classic_control import PendulumEnv

from duetto.tools.cli import COMMANDS
from duetto.tools.cli import demos as demos_command

QUICK = [*SMALL, *shlex.split("--steps 60 --environment-options max_episode_steps=5")]
RECORDING = "demos record Pendulum-v1 --expert made --episodes 2 --environment-options max_episode_steps=5"
CALLS = [
    "train td3 Pendulum-v1 QUICK",
    "train td3 Pendulum-v1 QUICK --quiet",
    "train td3 Pendulum-v1 QUICK --dry-run",
    "train td3 Pendulum-v1 QUICK --seeds 0,1 --quiet",
    "train td3 Pendulum-v1 QUICK --seeds 0,1 --dry-run",
    "sweep td3,sac Pendulum-v1 QUICK --seeds 2 --dry-run",
    "resume made --steps 70 --quiet",
    "evaluate made --episodes 1",
    "export made",
    "push made somebody/made --episodes 1 --no-video --dry-run",
    "check Pendulum-v1 --steps 50",
    "video made",
    "watch made",
    "plot made",
    "report made",
    "table made",
    "table made --output results.csv",
    "list",
    "list algorithms",
    "list environments",
    "list presets",
    "demos export DEMOS --output exported",
    RECORDING + " --output recorded",
    "demos inspect DEMOS",
    "demos inspect DEMOS --video first.mp4",
    "demos import minari --environment Pendulum-v1 --output imported --trust",
]
WRITES = {"video", "plot", "report", "table", "demos"}
KINDS = ("train", "sweep", "tune")  # their help is of an algorithm
ELSEWHERE = {"sweep", "tune", "pull"}  # which take processes, and a hub: tests/sweep, tests/tune, tests/hub


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from duetto.tools.cli import main

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


@pytest.fixture(scope="module")
def demos(made: Path) -> Path:
    from duetto.tools.cli import main

    folder = made.with_name("demos")
    with pytest.raises(SystemExit):
        main([*RECORDING.replace("made", str(made)).split(), "--output", str(folder)])
    return folder


@pytest.fixture(autouse=True)
def unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window that nobody sees, and that does not wait."""
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.setitem(PendulumEnv.metadata, "render_fps", 100_000)


@pytest.mark.parametrize("call", CALLS)
def test_one_object_and_nothing_else(duetto: Command, made: Path, demos: Path, tmp_path: Path, call: str):
    if " made" in call:
        shutil.copytree(made, tmp_path / "made")
    if "DEMOS" in call:
        shutil.copytree(demos, tmp_path / "DEMOS")
    if " minari " in call:
        write_minari(tmp_path / "minari")
    words = [word for part in call.split() for word in (QUICK if part == "QUICK" else [part])]
    out = duetto(*words, "--json").done().out
    found = said(out)
    assert found
    if words[0] in WRITES and call != "table made":
        assert (tmp_path / found["file"]).exists()


def test_every_command_has_it_and_is_tried(duetto: Command):
    called = {call.split()[0] for call in CALLS} | ELSEWHERE
    assert called == set(COMMANDS)
    parts = {tuple(call.split()[:2]) for call in CALLS if call.startswith("demos ")}
    assert parts == {("demos", part) for part in demos_command.COMMANDS}
    for name in COMMANDS:
        if name != "demos":
            parts.add((name, "td3") if name in KINDS else (name,))
    assert [part for part in parts if "--json" not in duetto(*part, "--help").out] == []


def test_a_dry_run_says_what_the_text_says(duetto: Command, tmp_path: Path):
    call = ("train", "td3", "Pendulum-v1", *QUICK, "--dry-run")
    planned = said(duetto(*call, "--json").out)
    assert planned | {"command": ""} == yaml.safe_load(duetto(*call).out) | {"command": ""}
    each = said(duetto(*call, "--json", "--seeds", "0,2").out)["runs"]
    assert [one["run"] | {"seed": 0} for one in each] == [planned["run"]] * 2
    assert [one["run"]["seed"] for one in each] == [0, 2]
    sweep = said(duetto("sweep", *call[1:], "--json", "--seeds", "2").out)
    folder = f"{tmp_path}/sweeps/td3-Pendulum-v1"
    runs = [{"path": f"{folder}/td3-Pendulum-v1-s{seed}", "state": "new", "step": 0} for seed in (0, 1)]
    assert sweep == {"folder": folder, "runs": runs}
    assert list(tmp_path.iterdir()) == []
