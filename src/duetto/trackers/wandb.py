"""The trackers for Weights & Biases and for Trackio, which has the same interface."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Mapping
from contextlib import redirect_stdout
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any, ClassVar

from duetto.trackers.base import Point, Tracker, flat, needed


class Wandb(Tracker):
    """A tracker that sends a run to Weights & Biases, or with WANDB_MODE=offline to a folder for `wandb sync`.

    W&B's environment variables apply: WANDB_PROJECT (default "duetto"), WANDB_ENTITY, WANDB_MODE, WANDB_DIR,
    WANDB_API_KEY. `options` are arguments of `wandb.init`: entity, tags, group, mode ...

    Raises:
        UsageError: wandb is not installed.
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
        """Start a tracked run, or continue the one with the id `known`. W&B's steps are the run's steps."""
        defaults: dict[str, Any] = {
            "project": self._project,
            "name": run,
            "id": known,
            "resume": "allow" if known else "never",
        }
        defaults |= {"settings": self._package.Settings(silent=True, console="off"), "reinit": "create_new"}
        self._run = started = self._package.init(**defaults | self._options)
        started.config.update(dict(config), allow_val_change=True)  # because a resume may change `steps`
        self._id = started.id
        return self._id, f"wandb sync {Path(started.dir).parent}" if started.offline else str(started.url or "")

    def send(self, point: Point) -> None:
        """Send the numbers of a step, and the newest video of this step."""
        videos: dict[str, Any] = {}
        for path in point.videos:  # of several videos with one name at a step, W&B keeps the last
            videos["video"] = self._package.Video(str(path), caption=path.stem, format="mp4")
        self._run.log(point.numbers | videos, step=point.step, **self._log_options)

    def best(self, folder: Path, step: int, mean_return: float) -> None:
        """Store the best parameters as an artifact."""
        metadata = {"step": step, "mean_return": mean_return}
        artifact = self._package.Artifact(f"best-{self._id}", type="model", metadata=metadata)
        artifact.add_dir(str(folder))
        self._run.log_artifact(artifact)

    def finish(self, failed: bool) -> None:
        """End tracking in this process."""
        self._run.finish(exit_code=int(failed))


class Trackio(Wandb):
    """A tracker that sends a run to Trackio: a local database for `trackio show`, or a Space on Hugging Face.

    Trackio's environment variables apply: TRACKIO_PROJECT (default "duetto"), TRACKIO_DIR, TRACKIO_SPACE_ID,
    TRACKIO_SERVER_URL. `options` are arguments of `trackio.init`: space_id, group, private ...

    Raises:
        UsageError: trackio is not installed.
    """

    name = "trackio"
    _log_options: ClassVar[dict[str, Any]] = {}

    def start(self, run: str, known: str | None, config: Mapping[str, Any], folder: Path) -> tuple[str, str]:
        """Start a tracked run, or continue the one with the id `known`.

        Trackio resumes a run by its name, so the id is the run's name with a random suffix.
        """
        options = {"config": flat(config), "embed": False, "auto_log_gpu": False, "auto_log_cpu": False} | self._options
        name = re.sub(r"[^\w.+-]", "-", run)[:100]
        self._id = known or f"{name}-{secrets.token_hex(4)}"
        with redirect_stdout(StringIO()):  # Trackio's output would break the progress display
            self._run = self._package.init(self._project, name=self._id, resume="allow", **options)
        return self._id, f"trackio show --project {self._project}"

    def finish(self, failed: bool) -> None:
        """End tracking in this process."""
        with redirect_stdout(StringIO()):
            self._package.finish()
