"""Each service as it is, without a network, where its package is installed: a run that is killed, and resumed."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from small_runs import CrashAt, CrashError, train
from tracked_runs import evaluations_of, lines_of

from duetto.callbacks import RecordVideo
from duetto.runs.run import Run

OPTIONS: dict[str, Any] = {"steps": 130, "environment_options": {"max_episode_steps": 15}, "name": "run"}

pytestmark = pytest.mark.filterwarnings("ignore")  # the services' own


def killed_and_resumed(folder: Path, name: str) -> Run:
    with pytest.raises(CrashError):
        train(folder, track=[name], callbacks=[RecordVideo(50), CrashAt(79)], **OPTIONS)
    return Run(folder / "run").resume(track=[name], callbacks=[RecordVideo(50)])


def check_values(run: Run, found: dict[str, list[tuple[int, float]]]) -> None:
    """Steps and values of some metrics are those of the run's own logs; after a kill some are there twice."""
    for name, logged in (("learn/q_mean", lines_of(run)), ("evaluation/mean_return", evaluations_of(run))):
        assert {step for step, _ in found[name]} == {step for step in logged if name in logged[step]}
        assert [value for _, value in found[name]] == pytest.approx([logged[step][name] for step, _ in found[name]])


# ---------------------------------------------------------------------------------------------------- W&B
def records(path: Path) -> Iterator[bytes]:
    """Of W&B's offline file: blocks of 32 KiB, in them pieces with checksum, length and kind (LevelDB's log)."""
    data, place, begun = path.read_bytes(), 7, b""
    while place + 7 <= len(data):
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
            continue
        length, kind = struct.unpack("<HB", data[place + 4 : place + 7])
        piece, place = data[place + 7 : place + 7 + length], place + 7 + length
        begun = piece if kind in (1, 2) else begun + piece
        if kind in (1, 4):
            yield begun


def written(path: Path, kind: Any) -> list[Any]:
    """Its records, once the last is there: W&B's own process writes them, on a busy machine after `finish`."""
    until = time.monotonic() + 30
    while True:
        found = [kind.FromString(data) for data in records(path)]
        if any(record.HasField("exit") for record in found):
            return found
        assert time.monotonic() < until, f"{path.name}: {len(found)} records, and no end"
        time.sleep(0.1)


def test_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    wandb = pytest.importorskip("wandb")
    from wandb.proto import wandb_internal_pb2

    for name, value in {"MODE": "offline", "DIR": tmp_path, "PROJECT": "mine"}.items():
        monkeypatch.setenv(f"WANDB_{name}", str(value))
    wandb.teardown()  # else a run of an earlier test in this process decides the folder
    run = killed_and_resumed(tmp_path, "wandb")
    found: dict[str, list[tuple[int, float]]] = {}
    ids, projects, videos, artifacts, configured = set(), set(), [], [], set()
    for path in sorted(tmp_path.glob("wandb/offline-run-*/run-*.wandb")):
        for record in written(path, wandb_internal_pb2.Record):
            ids |= {record.run.run_id} - {""}
            projects |= {record.run.project} - {""}
            configured |= {item.key for item in (*record.run.config.update, *record.config.update)}
            artifacts += [record.artifact.name] if record.artifact.name else []
            items = {item.key or ".".join(item.nested_key): item.value_json for item in record.history.item}
            videos += [record.history.step.num] if any(key.startswith("video") for key in items) else []
            for key, value in items.items():
                found.setdefault(key, []).append((record.history.step.num, json.loads(value)))
    check_values(run, found)
    assert ids == {(run.path / "tracking" / "wandb.txt").read_text()}
    assert (projects, set(videos), artifacts) == ({"mine"}, {0, 50, 100}, [f"best-{ids.pop()}"])
    assert {"algorithm", "environment", "run"} <= configured


# ---------------------------------------------------------------------------------------------------- MLflow
@pytest.mark.parametrize("store", ["file", "sqlite"])
def test_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str):
    pytest.importorskip("mlflow")
    if store == "sqlite":
        pytest.importorskip("sqlalchemy")
        pytest.importorskip("alembic")
    uri = f"file://{tmp_path}/mlruns" if store == "file" else f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
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
    folder = tmp_path if store == "file" else elsewhere  # of a database: the folder in which the experiment was created
    assert len(list(folder.glob(f"mlruns/*/{identity}/artifacts/best/state.safetensors"))) == 1


BEGINS = """
import sys, pathlib
from duetto.trackers.mlflow import MLflow
MLflow().start(sys.argv[1], None, {"a": 1}, pathlib.Path("run"))
"""


def test_runs_that_begin_in_one_new_mlflow_file_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """As those of a sweep do."""
    for package in ("mlflow", "sqlalchemy", "alembic"):
        pytest.importorskip(package)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("a: 1")
    started = [subprocess.Popen([sys.executable, "-c", BEGINS, name], cwd=tmp_path) for name in "abc"]
    assert [one.wait(300) for one in started] == [0, 0, 0]
    from mlflow.tracking import MlflowClient

    client = MlflowClient()
    runs = client.search_runs([client.get_experiment_by_name("duetto").experiment_id])
    assert {run.info.run_name for run in runs} == {"a", "b", "c"}


# ---------------------------------------------------------------------------------------------------- Trackio
@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))  # read once, when it is imported
    pytest.importorskip("trackio")
    return import_module("trackio.sqlite_storage").SQLiteStorage


def trackio_values(storage: Any, name: str) -> dict[str, list[tuple[int, Any]]]:
    found: dict[str, list[tuple[int, Any]]] = {}
    for line in sorted(storage.get_logs("duetto", name), key=lambda line: line["step"]):
        for key, value in line.items():
            found.setdefault(key, []).append((line["step"], value))
    return found


def test_trackio(storage: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
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
