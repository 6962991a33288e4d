"""Options of small studies, and an environment that raises once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import sweepable
from line_environment import Line


class RaisesOnce(Line):
    """Raises in a step if `file` exists, and deletes the file."""

    def __init__(self, file: str = "") -> None:
        super().__init__(length=5)
        self.file = Path(file)

    def step(self, action: Any) -> Any:
        if self.file.is_file():
            self.file.unlink()
            raise RuntimeError("the lever is stuck")
        return super().step(action)


RUN: dict[str, Any] = sweepable.RUN | {"threads": 1}
FIXED: dict[str, Any] = {"hidden": (8,), "batch_size": 4, "random_steps": 10, "learning_starts": 10, "n_step": 1}
SEARCH: dict[str, Any] = {"actor_learning_rate": "auto", "discount": "auto", "exploration_noise": "auto"}
SMALL: dict[str, Any] = {"search": SEARCH, "search_only": True, "seeds": 2, **RUN, **FIXED}
