"""With --json, every command prints one JSON object on stdout and nothing else."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
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
FILE_WRITERS = {"video", "plot", "report", "table", "demos"}
WITH_ALGORITHM = ("train", "sweep", "tune")  # commands whose help is for one algorithm
TESTED_ELSEWHERE = {"sweep", "tune", "pull"}  # these start processes or need a server


@pytest.fixture(scope="module")
def trained_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from duetto.tools.cli import main

    folder = tmp_path_factory.mktemp("made")
    with pytest.raises(SystemExit):
        main(["train", "td3", "Pendulum-v1", *QUICK, "--quiet", "--runs-dir", str(folder), "--name", "made"])
    return folder / "made"


def parse_output(text: str) -> dict[str, Any]:
    """Return the printed object. NaN is not valid JSON."""
    [line] = text.splitlines()
    found = json.loads(line, parse_constant=lambda word: pytest.fail(f"{word} is not valid JSON"))
    assert isinstance(found, dict)
    return found


@pytest.fixture(scope="module")
def demos(trained_run: Path) -> Path:
    from duetto.tools.cli import main

    folder = trained_run.with_name("demos")
    with pytest.raises(SystemExit):
        main([*RECORDING.replace("made", str(trained_run)).split(), "--output", str(folder)])
    return folder


@pytest.fixture(autouse=True)
def headless_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """Render without a window and without waiting between frames."""
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.setitem(PendulumEnv.metadata, "render_fps", 100_000)


@pytest.mark.parametrize("call", CALLS)
def test_json_option_prints_one_object_and_nothing_else(
    duetto: Command, trained_run: Path, demos: Path, tmp_path: Path, call: str
):
    if " made" in call:
        shutil.copytree(trained_run, tmp_path / "made")
    if "DEMOS" in call:
        shutil.copytree(demos, tmp_path / "DEMOS")
    if " minari " in call:
        write_minari(tmp_path / "minari")
    words = [word for part in call.split() for word in (QUICK if part == "QUICK" else [part])]
    out = duetto(*words, "--json").done().out
    found = parse_output(out)
    assert found
    if words[0] in FILE_WRITERS and call != "table made":
        assert (tmp_path / found["file"]).exists()


def test_every_command_has_the_json_option_and_a_case(duetto: Command):
    called = {call.split()[0] for call in CALLS} | TESTED_ELSEWHERE
    assert called == set(COMMANDS)
    parts = {tuple(call.split()[:2]) for call in CALLS if call.startswith("demos ")}
    assert parts == {("demos", part) for part in demos_command.COMMANDS}
    for name in COMMANDS:
        if name != "demos":
            parts.add((name, "td3") if name in WITH_ALGORITHM else (name,))
    assert [part for part in parts if "--json" not in duetto(*part, "--help").out] == []
