"""Output that cannot be written: the command ends, and the run can be resumed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import SMALL_PPO

from duetto.runs.run import Run

ENTRY = f"'{sys.executable}' -c 'from duetto.tools.cli import main; main()'"
TRAIN = f"{ENTRY} train ppo CartPole-v1 --preset default --steps 60 --runs-dir runs --name run {' '.join(SMALL_PPO)}"

pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs bash and /dev/full")


def run_in_shell(folder: Path, command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a pipeline in bash; the exit code is that of its first command."""
    command += "; exit ${PIPESTATUS[0]}"
    whole = os.environ | environment
    return subprocess.run(["bash", "-c", command], cwd=folder, env=whole, capture_output=True, text=True, check=False)


def test_unencodable_characters_are_printed_as_escapes(tmp_path: Path):
    result = run_in_shell(tmp_path, TRAIN, PYTHONIOENCODING="ascii")
    assert (result.returncode, result.stderr) == (0, "")
    assert r" \xb1 " in result.stdout
    result = run_in_shell(tmp_path, f"{ENTRY} train ppo --help", PYTHONIOENCODING="ascii")
    assert (result.returncode, result.stderr) == (0, "")


def test_run_ended_by_closed_pipe_can_be_resumed(tmp_path: Path):
    result = run_in_shell(tmp_path, f"{TRAIN} | head -1")
    assert (result.returncode, result.stderr) in [
        (1, ""),
        (0, ""),
    ]  # 0: the run wrote everything before head closed the pipe
    assert result.stdout.count("\n") == 1
    assert run_in_shell(tmp_path, f"{ENTRY} resume runs/run").returncode == 0
    assert Run(tmp_path / "runs" / "run").metrics()[-1]["step"] == 60
