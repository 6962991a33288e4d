"""The examples of clusters were not run; what can be known without one is looked at here."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

FOLDER = Path(__file__).parents[2] / "examples" / "cluster"
SCRIPTS = sorted(FOLDER.glob("*.sh"))
FILES = [*SCRIPTS, FOLDER / "kuberay.yaml"]
OPTION = re.compile(r"--[a-z][\w-]*")
COMMANDS = {"duetto": ("duetto", ["train td3", "resume"]), "ray": ("ray.scripts.scripts", ["start", "symmetric-run"])}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_is_bash(script: Path):
    done = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_manifest_is_yaml_whose_pods_share_an_image():
    manifest = yaml.safe_load((FOLDER / "kuberay.yaml").read_text())
    assert (manifest["apiVersion"], manifest["kind"]) == ("ray.io/v1", "RayJob")
    cluster = manifest["spec"]["rayClusterSpec"]
    pods = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    containers = [container for pod in pods for container in pod["template"]["spec"]["containers"]]
    assert len({container["image"] for container in containers}) == 1
    entrypoint = subprocess.run(["bash", "-n", "-c", manifest["spec"]["entrypoint"]], capture_output=True, text=True)
    assert entrypoint.returncode == 0, entrypoint.stderr


@pytest.mark.parametrize("program", COMMANDS)
def test_every_option_exists(program: str):
    """Of Duetto's commands and Ray's, by their help; `symmetric-run` hands on those of `start`."""
    module, commands = COMMANDS[program]
    calls = [[sys.executable, "-m", module, *command.split(), "--help"] for command in commands]
    shown = "".join(subprocess.run(call, capture_output=True, text=True).stdout for call in calls)
    known, found = set(OPTION.findall(shown)), set()
    for file in FILES:
        text = re.sub(r"\\?\n +", " ", file.read_text())  # lines that continue
        for line in re.findall(rf"\b{program} (?:{'|'.join(commands)})\b[^\n;)]*", text):
            found |= set(OPTION.findall(line.split(" -- ")[0]))
    assert len(found) > 3
    assert found <= known
