"""Trackio."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from contextlib import redirect_stdout
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any

from duetto.trackers.base import Point, Tracker, flat, needed


class Trackio(Tracker):
    """A tracker that sends a run to Trackio: a database on this machine that `trackio show` shows, or a Space.

    Trackio's own variables apply: TRACKIO_PROJECT (else "duetto"), TRACKIO_DIR, TRACKIO_SPACE_ID, TRACKIO_SERVER_URL.
    `options` are for `trackio.init`: space_id, group, private ... UsageError if trackio is not installed.
    """

    name = "trackio"

    def __init__(self, project: str | None = None, **options: Any) -> None:
        needed("trackio", "Trackio")
        self._project, self._options = project or os.environ.get("TRACKIO_PROJECT") or "duetto", options
        self._run: Any = None

    def start(self, run: str, known: str | None, config: Mapping[str, Any], folder: Path) -> tuple[str, str]:
        """Start a tracked run, or continue the known one. Trackio resumes by name: with a random end, it is the id."""
        options = {"config": flat(config), "embed": False, "auto_log_gpu": False, "auto_log_cpu": False} | self._options
        name = known or f"{run[:100]}-{secrets.token_hex(4)}"
        with redirect_stdout(StringIO()):  # its output would break the progress display
            self._run = import_module("trackio").init(self._project, name=name, resume="allow", **options)
        return name, f"trackio show --project {self._project}"

    def send(self, point: Point) -> None:
        """Send the numbers of a step, and the newest of its videos."""
        videos: dict[str, Any] = {}
        for path in point.videos:  # a point has one video of a name
            videos["video"] = import_module("trackio").Video(str(path), caption=path.stem, format="mp4")
        self._run.log(point.numbers | videos, step=point.step)

    def best(self, folder: Path, step: int, mean_return: float) -> None:
        """Keep the best parameters as an artifact."""
        artifact = import_module("trackio").Artifact(f"best-{self._run.name}", type="model")
        artifact.add_dir(str(folder))
        self._run.log_artifact(artifact)

    def finish(self, failed: bool) -> None:
        """End tracking in this process."""
        with redirect_stdout(StringIO()):
            import_module("trackio").finish()
