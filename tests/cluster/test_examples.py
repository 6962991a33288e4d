"""The cluster examples, as far as they can be checked without a cluster: syntax and options."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "cluster"
SCRIPTS = sorted(FOLDER.glob("*.sh"))
FILES = [*SCRIPTS, FOLDER / "kuberay.yaml"]
OPTION = re.compile(r"--[a-z][\w-]*")
COMMANDS = {"duetto": ("duetto", ["train td3", "resume"]), "ray": ("ray.scripts.scripts", ["start", "symmetric-run"])}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_example_script_is_valid_bash(script: Path):
    done = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("program", COMMANDS)
def test_example_options_exist(program: str):
    """The help of Duetto and Ray lists each option; `symmetric-run` passes options on to `start`."""
    module, commands = COMMANDS[program]
    calls = [[sys.executable, "-m", module, *command.split(), "--help"] for command in commands]
    shown = "".join(subprocess.run(call, capture_output=True, text=True).stdout for call in calls)
    known, found = set(OPTION.findall(shown)), set()
    for file in FILES:
        text = re.sub(r"\\?\n +", " ", file.read_text())  # join continued lines
        for line in re.findall(rf"\b{program} (?:{'|'.join(commands)})\b[^\n;)]*", text):
            found |= set(OPTION.findall(line.split(" -- ")[0]))
    assert len(found) > 3
    assert found <= known
