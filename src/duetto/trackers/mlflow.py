"""The tracker for MLflow."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from duetto.storage import safe_open
from duetto.trackers.base import Point, Tracker, flat, needed

MAX_VALUE = 6000  # maximum number of characters in a parameter's value
MAX_PARAMS = 100  # maximum number of parameters in one request


class MLflow(Tracker):
    """A tracker that sends a run to MLflow: a server, a database, or by default `mlflow.db` in the working directory.

    MLflow's environment variables apply: MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME (default "duetto"). `experiment`
    and `tracking_uri` override them.

    Raises:
        UsageError: MLflow is not installed.
    """

    name = "mlflow"

    def __init__(self, experiment: str | None = None, tracking_uri: str | None = None) -> None:
        needed("mlflow")
        self._experiment = experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or "duetto"
        self._uri = tracking_uri
        self._client: Any = None
        self._id = ""

    def start(self, run: str, known: str | None, config: Mapping[str, Any], folder: Path) -> tuple[str, str]:
        """Start a tracked run, or continue run `known`. Raises MLflow's error if that run no longer exists."""
        logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)  # hides MLflow's list of new tables
        # Without the lock, several runs of a sweep may create the SQLite file at the same time and damage it.
        lock = folder.parent / ".mlflow.lock"
        os.close(safe_open.open_file(lock, os.O_RDWR | os.O_CREAT))  # MLflow would follow a link and empty its target
        with import_module("mlflow.utils.file_utils").ExclusiveFileLock(str(lock)):
            self._client = import_module("mlflow.tracking").MlflowClient(tracking_uri=self._uri)
            experiment = self._client.get_experiment_by_name(self._experiment)
            experiment_id = experiment.experiment_id if experiment else self._client.create_experiment(self._experiment)
        if known is None:
            self._id = self._client.create_run(experiment_id, run_name=run).info.run_id
            param = import_module("mlflow.entities").Param
            params = [param(key, str(value)[:MAX_VALUE]) for key, value in flat(config).items()]
            for first in range(0, len(params), MAX_PARAMS):
                self._client.log_batch(self._id, params=params[first : first + MAX_PARAMS])
        else:
            self._id = self._client.get_run(known).info.run_id
            self._client.update_run(known, status="RUNNING")
        self._client.log_artifact(self._id, str(folder / "config.yaml"))
        return self._id, f"the run {run} of {self._client.tracking_uri}"

    def send(self, point: Point) -> None:
        """Send the numbers and videos of a step."""
        metric, now = import_module("mlflow.entities").Metric, int(time.time() * 1000)
        metrics = [metric(name, value, now, point.step) for name, value in point.numbers.items()]
        if metrics:
            self._client.log_batch(self._id, metrics=metrics)
        for path in point.videos:
            self._client.log_artifact(self._id, str(path), "videos")

    def best(self, folder: Path, step: int, mean_return: float) -> None:
        """Store the best parameters as an artifact, which replaces the earlier artifact."""
        self._client.log_artifacts(self._id, str(folder), "best")
        self._client.set_tag(self._id, "duetto.best_step", step)
        self._client.set_tag(self._id, "duetto.best_return", mean_return)

    def finish(self, failed: bool) -> None:
        """End tracking in this process."""
        self._client.set_terminated(self._id, "FAILED" if failed else "FINISHED")
