"""Output that cannot be written: a run continues, other commands say so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import SMALL_PPO

from duetto.runs.run import Run
from duetto.storage.checkpoint import CheckpointStore

ENTRY = f"'{sys.executable}' -c 'from duetto.tools.cli import main; main()'"
TRAIN = f"{ENTRY} train ppo CartPole-v1 --preset default --steps 60 --runs-dir runs --name run {' '.join(SMALL_PPO)}"

pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs bash and /dev/full")


def shell(folder: Path, command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The exit code is that of the first command of a pipe."""
    command += "; exit ${PIPESTATUS[0]}"
    whole = os.environ | environment
    return subprocess.run(["bash", "-c", command], cwd=folder, env=whole, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("where", ["| head -1", "> /dev/full", ">&-", ">&- 2>&- <&-"])
def test_a_run_goes_on_though_nobody_can_read_it(tmp_path: Path, where: str):
    result = shell(tmp_path, f"{TRAIN} {where}")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.count("\n") == where.count("head")
    run = Run(tmp_path / "runs" / "run")
    assert CheckpointStore(run.path / "checkpoints").load_latest().step == 60
    assert run.metrics()[-1]["step"] == 60
    if where == "> /dev/full":
        result = shell(tmp_path, f"{ENTRY} resume runs/run --steps 80 {where}")
        assert (result.returncode, result.stderr) == (0, "")
        assert CheckpointStore(run.path / "checkpoints").load_latest().step == 80


def test_a_terminal_without_the_characters_gets_escapes(tmp_path: Path):
    result = shell(tmp_path, TRAIN, PYTHONIOENCODING="ascii")
    assert (result.returncode, result.stderr) == (0, "")
    assert r" \xb1 " in result.stdout
    result = shell(tmp_path, f"{ENTRY} evaluate runs/run --episodes 1", PYTHONIOENCODING="ascii")
    assert (result.returncode, result.stderr) == (0, "")
    result = shell(tmp_path, f"{ENTRY} train ppo --help", PYTHONIOENCODING="ascii")
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("command", ["--help", "list", "train td3 --help"])
def test_a_command_that_only_says_something_fails_where_it_cannot(tmp_path: Path, command: str):
    result = shell(tmp_path, f"{ENTRY} {command} > /dev/full")
    said = "duetto: The output of this command cannot be written: No space left on device.\n"
    assert (result.returncode, result.stderr) == (1, said)


def test_a_mistake_is_said_though_the_output_is_lost(tmp_path: Path):
    result = shell(tmp_path, f"{TRAIN} --minibatches 9 > /dev/full")
    assert result.returncode == 2
    assert result.stderr.startswith("duetto: A rollout of 10 steps")
