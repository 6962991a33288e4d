"""Trackio."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from duetto.trackers.base import Point, Tracker, flat, imported, needed


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
        """Start a tracked run, or continue the known one. Trackio resumes by name: with a random end, it is the id.

        Trackio knows a run half a second after its first point. If a run ended before that, a new one starts, unless
        Trackio is a Space or a server, which may only be unreachable.
        """
        options = {"config": flat(config), "embed": False, "auto_log_gpu": False, "auto_log_cpu": False} | self._options
        name = known or self._new(run)
        with redirect_stdout(StringIO()):  # its output would break the progress display
            trackio = imported("trackio")
            try:
                self._run = trackio.init(self._project, name=name, resume="must" if known else "never", **options)
            except ValueError as error:
                if not known or self._is_elsewhere() or "does not exist" not in str(error):
                    raise
                name = self._new(run)
                self._run = trackio.init(self._project, name=name, resume="never", **options)
        return name, f"trackio show --project {self._project}"

    def _new(self, run: str) -> str:
        return f"{run[:100]}-{secrets.token_hex(4)}"

    def _is_elsewhere(self) -> bool:
        return any(
            self._options.get(to) or os.environ.get(f"TRACKIO_{to.upper()}") for to in ("space_id", "server_url")
        )

    def send(self, point: Point) -> None:
        """Send the numbers of a step, and the newest of its videos."""
        videos: dict[str, Any] = {}
        for path in point.videos:  # a point has one video of a name
            videos["video"] = imported("trackio").Video(str(path), caption=path.stem, format="mp4")
        self._run.log(point.numbers | videos, step=point.step)

    def best(self, folder: Path, step: int, mean_return: float) -> None:
        """Keep the best parameters as an artifact."""
        artifact = imported("trackio").Artifact(f"best-{self._run.name}", type="model")
        artifact.add_dir(str(folder))
        self._run.log_artifact(artifact)

    def finish(self, failed: bool) -> None:
        """End tracking in this process."""
        with redirect_stdout(StringIO()):
            imported("trackio").finish()
