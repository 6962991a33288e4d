"""MLflow."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from duetto.errors import RunInUseError, UsageError
from duetto.storage.folder_lock import FolderLock
from duetto.trackers.base import Point, Tracker, flat, imported, needed

PATIENCE = 300.0  # seconds for others that begin in the same file
_LONGEST = 6000  # characters of a parameter's value


class MLflow(Tracker):
    """A tracker that sends a run to MLflow: a server, a database, or by default the file `mlflow.db` here.

    MLflow's own variables hold: MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME (else "duetto"). An experiment that begins
    in an SQLite file keeps its artefacts beside it, in `mlruns`; all others have theirs where MLflow puts them.
    `experiment` and `tracking_uri` override these variables. UsageError if MLflow is not installed.
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
        tracking = imported("mlflow.tracking")
        with _alone(
            self._uri or tracking.get_tracking_uri()
        ):  # the first contact makes tables, which two at once spoil
            self._client = tracking.MlflowClient(tracking_uri=self._uri)
            self._id = self._new(run) if known is None else self._client.get_run(known).info.run_id  # error: it is gone
        if known is None:
            parameter = imported("mlflow.entities").Param
            values = [parameter(key, str(value)[:_LONGEST]) for key, value in flat(config).items()]
            for first in range(0, len(values), 100):  # as many as it takes at once
                self._client.log_batch(self._id, params=values[first : first + 100])
        else:
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


@contextmanager
def _alone(uri: str) -> Iterator[None]:
    """Keep others on this machine from beginning in the same SQLite file; do nothing for any other `uri`."""
    folder = _folder(uri)
    if folder is None:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + PATIENCE
    with ExitStack() as held:
        while True:
            try:
                held.enter_context(FolderLock(folder))
                break
            except RunInUseError:
                if time.monotonic() > until:
                    said = f"{folder} has been locked for {PATIENCE:.0f} s by another run that begins. Try again."
                    raise UsageError(said) from None
                time.sleep(0.1)
        yield


def _folder(uri: str) -> Path | None:
    """The folder for artefacts beside an SQLite file; None for all else."""
    file = uri.removeprefix("sqlite:///").partition("?")[0]
    is_file = uri.startswith("sqlite:///") and file not in ("", ":memory:")
    return Path(file).absolute().parent / "mlruns" if is_file else None


def beside(uri: str, experiment: str) -> str | None:
    """The URI for a new experiment's artefacts: beside its SQLite file, not in the folder that is current when it is
    made. None for all else, where MLflow decides.
    """
    folder = _folder(uri)
    return None if folder is None else (folder / re.sub(r"[^\w+-]+", "-", experiment)).as_uri()
