"""Options of small sweeps, and an environment that raises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from line_environment import Line

import duetto


class Stuck(Line):
    """Raises from its thirtieth step on, as long as `file` exists."""

    def __init__(self, file: str = "") -> None:
        super().__init__(length=5)
        self.file = file

    def step(self, action: Any) -> Any:
        if self.life >= 30 and Path(self.file).is_file():
            raise RuntimeError("the lever is stuck")
        return super().step(action)


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
