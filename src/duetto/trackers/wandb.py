"""Weights & Biases, and Trackio, whose package has the same functions."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from contextlib import redirect_stdout
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any, ClassVar

from duetto.trackers.base import Point, Tracker, flat, needed


class Wandb(Tracker):
    """A tracker that sends a run to Weights & Biases, or with WANDB_MODE=offline to a folder that `wandb sync` sends.

    W&B's own variables apply: WANDB_PROJECT (else "duetto"), WANDB_ENTITY, WANDB_MODE, WANDB_DIR, WANDB_API_KEY.
    `options` are for `wandb.init`: entity, tags, group, mode ... UsageError if wandb is not installed.
    """

    name = "wandb"
    _log_options: ClassVar[dict[str, Any]] = {"commit": True}

    def __init__(self, project: str | None = None, **options: Any) -> None:
        needed(self.name)
        self._project = project or os.environ.get(f"{self.name.upper()}_PROJECT") or "duetto"
        self._options, self._id = options, ""
        self._run: Any = None

    @property
    def _package(self) -> Any:
        return import_module(self.name)

    def start(self, run: str, known: str | None, config: Mapping[str, Any], folder: Path) -> tuple[str, str]:
        """Start a tracked run, or continue the known one. W&B's steps are the run's."""
        defaults: dict[str, Any] = {
            "project": self._project,
            "name": run,
            "id": known,
            "resume": "allow" if known else "never",
        }
        defaults |= {"settings": self._package.Settings(silent=True, console="off"), "reinit": "create_new"}
        self._run = started = self._package.init(**defaults | self._options)
        started.config.update(dict(config), allow_val_change=True)  # a resumed run may have more steps
        self._id = started.id
        return self._id, f"wandb sync {Path(started.dir).parent}" if started.offline else str(started.url or "")

    def send(self, point: Point) -> None:
        """Send the numbers of a step, and the newest of its videos."""
        videos: dict[str, Any] = {}
        for path in point.videos:  # a step has one video of a name
            videos["video"] = self._package.Video(str(path), caption=path.stem, format="mp4")
        self._run.log(point.numbers | videos, step=point.step, **self._log_options)

    def best(self, folder: Path, step: int, mean_return: float) -> None:
        """Keep the best parameters as an artifact."""
        metadata = {"step": step, "mean_return": mean_return}
        artifact = self._package.Artifact(f"best-{self._id}", type="model", metadata=metadata)
        artifact.add_dir(str(folder))
        self._run.log_artifact(artifact)

    def finish(self, failed: bool) -> None:
        """End tracking in this process."""
        self._run.finish(exit_code=int(failed))


class Trackio(Wandb):
    """A tracker that sends a run to Trackio: a database on this machine that `trackio show` shows, or a Space.

    Trackio's own variables apply: TRACKIO_PROJECT (else "duetto"), TRACKIO_DIR, TRACKIO_SPACE_ID, TRACKIO_SERVER_URL.
    `options` are for `trackio.init`: space_id, group, private ... UsageError if trackio is not installed.
    """

    name = "trackio"
    _log_options: ClassVar[dict[str, Any]] = {}

    def start(self, run: str, known: str | None, config: Mapping[str, Any], folder: Path) -> tuple[str, str]:
        """Start a tracked run, or continue the known one. Trackio resumes by name: with a random end, it is the id."""
        options = {"config": flat(config), "embed": False, "auto_log_gpu": False, "auto_log_cpu": False} | self._options
        self._id = known or f"{run[:100]}-{secrets.token_hex(4)}"
        with redirect_stdout(StringIO()):  # its output would break the progress display
            self._run = self._package.init(self._project, name=self._id, resume="allow", **options)
        return self._id, f"trackio show --project {self._project}"

    def finish(self, failed: bool) -> None:
        """End tracking in this process."""
        with redirect_stdout(StringIO()):
            self._package.finish()
