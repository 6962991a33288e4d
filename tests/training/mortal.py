"""A process that trains and kills itself: `python mortal.py '{"runs_dir": ..., "kill_at": 70, ...}'`.

It sends itself SIGKILL, which no code can handle, after a step or while it writes a checkpoint.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from small_runs import small, train

from duetto.runs.run import Run
from duetto.storage import atomic_io
from duetto.training.trainer import Trainer


class LethalOS:
    """Replaces `os` in `atomic_io`; once `armed`, the process dies at the operation after `operations` operations."""

    def __init__(self, operations: int) -> None:
        self._left, self.armed = operations, False

    def __getattr__(self, name: str) -> Any:
        if self.armed and callable(getattr(os, name)):
            self._left -= 1
            if self._left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return getattr(os, name)


def live(call: dict[str, Any]) -> None:
    lethal = LethalOS(call.get("operation", 0))

    def die(trainer: Trainer) -> None:
        if trainer.step >= call.get("kill_at", sys.maxsize):
            os.kill(os.getpid(), signal.SIGKILL)
        if trainer.step >= call.get("arm_at", sys.maxsize):  # at the step before a checkpoint is due
            lethal.armed = True

    atomic_io.os = lethal
    if "resume" in call:
        Run(call["resume"]).resume(callbacks=[die])
        return
    hyperparameters = {name: tuple(v) if isinstance(v, list) else v for name, v in call["hyperparameters"].items()}
    algorithm = small(call["algorithm"], **hyperparameters)
    train(Path(call["runs_dir"]), algorithm, call["environment"], callbacks=[die], name="mortal", **call["options"])


def spawn(call: dict[str, Any], **environment: str) -> subprocess.Popen[str]:
    """Start this file as a process, with these environment variables."""
    # Compile JAX programs again, as in a user's resume.
    environment = os.environ | {"JAX_ENABLE_COMPILATION_CACHE": "false"} | environment
    command = [sys.executable, __file__, json.dumps(call)]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


def killed(call: dict[str, Any]) -> None:
    """Run the process until it kills itself."""
    with spawn(call) as process:
        _, errors = process.communicate(timeout=100)
        assert process.returncode == -signal.SIGKILL, errors


if __name__ == "__main__":
    live(json.loads(sys.argv[1]))
