"""Small environments to sweep over, and runs on them."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from line_environment import Line

import duetto


class Stuck(Line):
    """It raises in its thirtieth step, as long as there is a file."""

    def __init__(self, file: str = "") -> None:
        super().__init__(length=5)
        self.file = file

    def step(self, action: Any) -> Any:
        if self.life >= 30 and Path(self.file).is_file():
            raise RuntimeError("the lever is stuck")
        return super().step(action)


class Orphaned(Line):
    """Its process is killed, and leaves a child behind that holds all that it held."""

    def step(self, action: Any) -> Any:
        if not os.fork():
            time.sleep(60)
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)


RUN: dict[str, Any] = {
    "steps": 60,
    "backend": "torch",
    "device": "cpu",
    "evaluate_every": 20,
    "evaluation_episodes": 1,
    "checkpoint_every": 20,
    "log_every": 20,
}
SMALL: dict[str, Any] = {"hidden": (8,), "batch_size": 4, "random_steps": 10, "learning_starts": 10}


def small() -> duetto.TD3:
    return duetto.TD3(**SMALL)
