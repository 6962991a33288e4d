"""W&B, MLflow and Trackio offline, if they are installed: a run that is killed and resumed."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from small_runs import CrashAt, CrashError, train
from tracked_runs import evaluations_by_step, metrics_by_step

from duetto.callbacks import RecordVideo
from duetto.runs.run import Run

OPTIONS: dict[str, Any] = {"steps": 130, "environment_options": {"max_episode_steps": 15}, "name": "run"}

pytestmark = pytest.mark.filterwarnings("ignore")  # of the services


def killed_and_resumed(folder: Path, name: str) -> Run:
    with pytest.raises(CrashError):
        train(folder, track=[name], callbacks=[RecordVideo(50), CrashAt(79)], **OPTIONS)
    return Run(folder / "run").resume(track=[name], callbacks=[RecordVideo(50)])


def check_values(run: Run, found: dict[str, list[tuple[int, float]]]) -> None:
    """Compare steps and values with the run's logs. After a kill a service can have points twice."""
    for name, logged in (("learn/q_mean", metrics_by_step(run)), ("evaluation/mean_return", evaluations_by_step(run))):
        assert {step for step, _ in found[name]} == {step for step in logged if name in logged[step]}
        assert [value for _, value in found[name]] == pytest.approx([logged[step][name] for step, _ in found[name]])


# ---------------------------------------------------------------------------------------------------- W&B
def test_wandb_gets_points_of_resumed_run_and_videos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    wandb = pytest.importorskip("wandb")
    for name, value in {"MODE": "offline", "DIR": tmp_path, "PROJECT": "mine"}.items():
        monkeypatch.setenv(f"WANDB_{name}", str(value))
    wandb.teardown()  # otherwise W&B keeps the folder of an earlier test
    sent: list[tuple[int, dict[str, Any]]] = []
    log = wandb.Run.log

    def noted(self: Any, data: dict[str, Any], step: int, **how: Any) -> None:
        sent.append((step, dict(data)))
        log(self, data, step=step, **how)

    monkeypatch.setattr(wandb.Run, "log", noted)
    run = killed_and_resumed(tmp_path, "wandb")
    names = ("learn/q_mean", "evaluation/mean_return", "video")
    found = {name: [(step, data[name]) for step, data in sent if name in data] for name in names}
    check_values(run, found)
    assert {step for step, _ in found["video"]} == {0, 50, 100}
    identity = (run.path / "tracking" / "wandb.txt").read_text()
    assert {path.stem for path in tmp_path.glob("wandb/offline-run-*/run-*.wandb")} == {f"run-{identity}"}


# ---------------------------------------------------------------------------------------------------- MLflow
def test_mlflow_gets_points_of_resumed_run_and_artifacts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for package in ("mlflow", "sqlalchemy", "alembic"):
        pytest.importorskip(package)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.chdir(tmp_path)
    from mlflow.tracking import MlflowClient

    run, client = killed_and_resumed(tmp_path, "mlflow"), MlflowClient()
    [tracked] = client.search_runs([client.get_experiment_by_name("duetto").experiment_id])
    identity = tracked.info.run_id
    names = ("learn/q_mean", "evaluation/mean_return")
    check_values(run, {n: sorted((m.step, m.value) for m in client.get_metric_history(identity, n)) for n in names})
    assert (tracked.info.status, tracked.info.run_name) == ("FINISHED", "run")
    assert tracked.data.params["algorithm.batch_size"] == "16"
    assert [item.path for item in client.list_artifacts(identity)] == ["best", "config.yaml", "videos"]
    assert len(client.list_artifacts(identity, "videos")) == 3
    assert "best/state.safetensors" in [item.path for item in client.list_artifacts(identity, "best")]


START_MLFLOW = """
import sys, pathlib
from duetto.trackers.mlflow import MLflow
MLflow().start(sys.argv[1], None, {"a": 1}, pathlib.Path("run"))
"""


def test_concurrent_runs_create_one_mlflow_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """As the runs of a sweep do."""
    for package in ("mlflow", "sqlalchemy", "alembic"):
        pytest.importorskip(package)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("a: 1")
    started = [subprocess.Popen([sys.executable, "-c", START_MLFLOW, name], cwd=tmp_path) for name in "abc"]
    assert [one.wait(300) for one in started] == [0, 0, 0]
    from mlflow.tracking import MlflowClient

    client = MlflowClient()
    runs = client.search_runs([client.get_experiment_by_name("duetto").experiment_id])
    assert {run.info.run_name for run in runs} == {"a", "b", "c"}


# ---------------------------------------------------------------------------------------------------- Trackio
@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))  # trackio reads it when it is imported
    pytest.importorskip("trackio")
    return import_module("trackio.sqlite_storage").SQLiteStorage


def trackio_values(storage: Any, name: str) -> dict[str, list[tuple[int, Any]]]:
    found: dict[str, list[tuple[int, Any]]] = {}
    for line in sorted(storage.get_logs("duetto", name), key=lambda line: line["step"]):
        for key, value in line.items():
            found.setdefault(key, []).append((line["step"], value))
    return found


def test_trackio_gets_points_of_resumed_run_and_artifacts(
    storage: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    run = killed_and_resumed(tmp_path, "trackio")
    assert "trackio" not in capsys.readouterr().out.lower()
    name = (run.path / "tracking" / "trackio.txt").read_text()
    found = trackio_values(storage, name)
    check_values(run, found)
    assert {step for step, _ in found["video"]} == {0, 50, 100}
    config = storage.get_run_config("duetto", name)
    assert config is not None
    assert config["algorithm.batch_size"] == 16
    assert f"best-{name}" in [artifact["name"] for artifact in storage.get_artifacts("duetto")]
