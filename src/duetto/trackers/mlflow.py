"""MLflow."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from duetto.trackers.base import Point, Tracker, flat, imported, needed

_LONGEST = 6000  # characters of a parameter's value


class MLflow(Tracker):
    """Sends a run to MLflow: a server, a database, or by default the file `mlflow.db` here.

    MLflow's own variables hold: MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME (else "duetto"). An experiment that begins
    in an SQLite file keeps its artefacts beside it, in `mlruns`; all others have theirs where MLflow puts them.
    """

    name = "mlflow"

    def __init__(self, experiment: str | None = None, tracking_uri: str | None = None) -> None:
        needed("mlflow", "MLflow")
        self._experiment = experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or "duetto"
        self._uri = tracking_uri
        self._client: Any = None
        self._id = ""

    def begin(self, run: str, known: str | None, config: Mapping[str, Any], folder: Path) -> tuple[str, str]:
        """See Tracker."""
        logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)  # which tables a new database gets
        self._client = imported("mlflow.tracking").MlflowClient(tracking_uri=self._uri)
        if known is None:
            self._id = self._new(run)
            parameter = imported("mlflow.entities").Param
            values = [parameter(key, str(value)[:_LONGEST]) for key, value in flat(config).items()]
            for first in range(0, len(values), 100):  # as many as it takes at once
                self._client.log_batch(self._id, params=values[first : first + 100])
        else:
            self._id = self._client.get_run(known).info.run_id  # an error, if it is there no more
            self._client.update_run(known, status="RUNNING")
        self._client.log_artifact(self._id, str(folder / "config.yaml"))
        return self._id, f"the run {run} of {self._client.tracking_uri}"

    def _new(self, run: str) -> str:
        experiment = self._client.get_experiment_by_name(self._experiment)
        if experiment:
            number = experiment.experiment_id
        else:
            place = beside(self._client.tracking_uri, self._experiment)
            number = self._client.create_experiment(self._experiment, artifact_location=place)
        return self._client.create_run(number, run_name=run).info.run_id

    def send(self, point: Point) -> None:
        """See Tracker."""
        metric, now = imported("mlflow.entities").Metric, int(time.time() * 1000)
        values = [metric(name, value, now, point.step) for name, value in point.numbers.items()]
        if values:
            self._client.log_batch(self._id, metrics=values)
        for path in point.videos:
            self._client.log_artifact(self._id, str(path), "videos")

    def best(self, folder: Path, step: int, mean_return: float) -> None:
        """See Tracker. The artefacts of an earlier one are written over."""
        self._client.log_artifacts(self._id, str(folder), "best")
        self._client.set_tag(self._id, "duetto.best_step", step)
        self._client.set_tag(self._id, "duetto.best_return", mean_return)

    def finish(self, failed: bool) -> None:
        """See Tracker."""
        self._client.set_terminated(self._id, "FAILED" if failed else "FINISHED")


def beside(uri: str, experiment: str) -> str | None:
    """Where the artefacts of a new experiment go: beside its SQLite file, and not into the folder that is current when
    it is made. None, MLflow's to say, for all else.
    """
    file = uri.removeprefix("sqlite:///").partition("?")[0]
    if not uri.startswith("sqlite:///") or file in ("", ":memory:"):
        return None
    return (Path(file).absolute().parent / "mlruns" / re.sub(r"[^\w+-]+", "-", experiment)).as_uri()
