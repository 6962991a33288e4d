"""A process that trains and is killed: `python mortal.py '{"runs_dir": ..., "kill_at": 70, ...}'`.

It kills itself with SIGKILL, of which no code gets to know, after a step or in the middle of writing a checkpoint.
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
    """Takes the place of `os` in `disk`: the process dies instead of the k-th operation after `arm`."""

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
    """Start such a process, with these variables."""
    # Programs are compiled anew, as they are when a user resumes.
    environment = os.environ | {"JAX_ENABLE_COMPILATION_CACHE": "false"} | environment
    command = [sys.executable, __file__, json.dumps(call)]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


def killed(call: dict[str, Any]) -> None:
    """Run one until it is killed."""
    with spawn(call) as process:
        _, errors = process.communicate(timeout=100)
        assert process.returncode == -signal.SIGKILL, errors


if __name__ == "__main__":
    live(json.loads(sys.argv[1]))
