"""Weights & Biases."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from duetto.trackers.base import Point, Tracker, needed


class Wandb(Tracker):
    """A tracker that sends a run to Weights & Biases, or with WANDB_MODE=offline to a folder that `wandb sync` sends.

    W&B's own variables apply: WANDB_PROJECT (else "duetto"), WANDB_ENTITY, WANDB_MODE, WANDB_DIR, WANDB_API_KEY.
    `options` are for `wandb.init`: entity, tags, group, mode ... UsageError if wandb is not installed.
    """

    name = "wandb"

    def __init__(self, project: str | None = None, **options: Any) -> None:
        needed("wandb", "Weights & Biases")
        self._project, self._options = project or os.environ.get("WANDB_PROJECT") or "duetto", options
        self._run: Any = None

    def start(self, run: str, known: str | None, config: Mapping[str, Any], folder: Path) -> tuple[str, str]:
        """Start a tracked run, or continue the known one. W&B's steps are the run's."""
        wandb = import_module("wandb")
        defaults: dict[str, Any] = {
            "project": self._project,
            "name": run,
            "id": known,
            "resume": "allow" if known else "never",
        }
        defaults |= {"settings": wandb.Settings(silent=True, console="off"), "reinit": "create_new"}
        self._run = wandb.init(**defaults | self._options)
        self._run.config.update(dict(config), allow_val_change=True)  # a resumed run may have more steps
        offline = self._run.offline
        return self._run.id, f"wandb sync {Path(self._run.dir).parent}" if offline else str(self._run.url or "")

    def send(self, point: Point) -> None:
        """Send the numbers of a step, and the newest of its videos."""
        videos: dict[str, Any] = {}
        for path in point.videos:  # a step has one video of a name
            videos["video"] = import_module("wandb").Video(str(path), caption=path.stem, format="mp4")
        self._run.log(point.numbers | videos, step=point.step, commit=True)

    def best(self, folder: Path, step: int, mean_return: float) -> None:
        """Keep the best parameters as an artifact."""
        metadata = {"step": step, "mean_return": mean_return}
        artifact = import_module("wandb").Artifact(f"best-{self._run.id}", type="model", metadata=metadata)
        for path in sorted(folder.iterdir()):
            artifact.add_file(str(path))
        self._run.log_artifact(artifact)

    def finish(self, failed: bool) -> None:
        """End tracking in this process."""
        self._run.finish(exit_code=int(failed))
