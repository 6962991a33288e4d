"""Trackers get every point, and after a kill some points twice."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from small_runs import CrashAt, CrashError, StopAt, notices, train
from tracked_runs import evaluations_by_step, metrics_by_step

import duetto
from duetto.callbacks import RecordVideo
from duetto.errors import DuettoError, UsageError
from duetto.install_hint import install
from duetto.runs.run import Run
from duetto.trackers import Point, Tracker


class FakeService:
    """A tracked run in memory."""

    def __init__(self) -> None:
        self.points: list[Point] = []
        self.calls: list[str] = []
        self.config: Mapping[str, Any] = {}
        self.best: list[int] = []
        self.refusing = False

    @property
    def steps(self) -> list[int]:
        return [point.step for point in self.points]


class FakeTracker(Tracker):
    name = "fake"

    def __init__(self, service: FakeService) -> None:
        self.service = service

    def start(self, run: str, known: str | None, config: Mapping[str, Any], folder: Path) -> tuple[str, str]:
        self.service.calls.append(f"start {run} {known}")
        self.service.config = config
        return known or "run-1", "in memory"

    def send(self, point: Point) -> None:
        if self.service.refusing:
            raise ConnectionError("nobody is there.\nand more")
        self.service.points.append(point)

    def best(self, folder: Path, step: int, mean_return: float) -> None:
        assert (folder / "state.safetensors").exists()
        self.service.best.append(step)

    def finish(self, failed: bool) -> None:
        self.service.calls.append(f"finish {failed}")


class Misnamed(FakeTracker):
    name: ClassVar[Any] = "my/tracker"


def check_sent_points(service: FakeService, run: Run, *ends: int) -> None:
    """Check that the service has all metrics and evaluations, and points at the steps `ends`, where the run ended."""
    assert sorted(set(service.steps)) == sorted({*metrics_by_step(run), *evaluations_by_step(run), *ends})
    for point in (one for one in service.points if one.step not in ends):
        line, evaluation = metrics_by_step(run).get(point.step, {}), evaluations_by_step(run).get(point.step, {})
        expected = {name: value for name, value in (line | evaluation).items() if not name.startswith("time/")}
        assert {name: point.numbers[name] for name in expected} == pytest.approx(expected)
        assert {name for name in point.numbers if not name.startswith("time/")} == expected.keys()


# ---------------------------------------------------------------------------------------------------- sent points
def test_tracker_gets_config_metrics_evaluations_and_best(tmp_path: Path):
    service = FakeService()
    run = train(
        tmp_path,
        track=[FakeTracker(service)],
        callbacks=[lambda trainer: trainer.log.scalar("arm/torque", trainer.step)],
    )
    check_sent_points(service, run)
    assert service.points[0].numbers.keys() == {
        f"evaluation/{name}" for name in ("mean_return", "std_return", "min_return", "max_return", "mean_length")
    }
    assert service.points[1].numbers["arm/torque"] == 12.5
    assert service.config["algorithm"]["hidden"] == [32, 32]
    assert service.calls == ["start td3-Pendulum-v1-s0 None", "finish False"]
    assert service.best == [run.agent("best").step]


@pytest.mark.parametrize("crash", [61, 119])
def test_killed_run_continues_in_the_same_tracked_run(tmp_path: Path, crash: int):
    service = FakeService()
    with pytest.raises(CrashError):
        train(tmp_path, name="killed", track=[FakeTracker(service)], callbacks=[CrashAt(crash)])
    assert service.calls[1] == "finish True"
    before = len(service.points)
    run = Run(tmp_path / "killed").resume(track=[FakeTracker(service)])
    check_sent_points(service, run)
    assert 0 < before < len(service.points)
    again = service.steps[before:]
    assert again == sorted(set(again))
    assert min(again) >= crash // 40 * 40  # no points from before the last checkpoint
    assert service.calls[2:] == ["start killed run-1", "finish False"]
    ended = len(service.points)
    run.resume(track=[FakeTracker(service)])  # it is complete, and has no new points
    assert set(service.steps[ended:]) <= {200}


def test_metrics_logged_while_tracking_was_off_are_skipped(tmp_path: Path):
    service = FakeService()
    run = train(tmp_path, callbacks=[StopAt(110)])
    run.resume(track=[FakeTracker(service)], callbacks=[StopAt(130)])
    assert service.steps == [0, 25, 50, 60, 75, 100, 120, 125, 130]
    [note] = notices(run, callbacks=[StopAt(160)])
    assert note.startswith("This run was tracked by fake, and continues without tracking.")
    assert service.steps[-1] == 130
    assert notices(run, track=[FakeTracker(service)]) == ["Tracked by fake: in memory"]
    steps = sorted({*metrics_by_step(run), *evaluations_by_step(run), 130})
    assert sorted(set(service.steps)) == [step for step in steps if not 130 < step < 160]


class LogsAtEnd(duetto.Callback):
    def on_end(self, trainer: duetto.Trainer) -> None:
        trainer.log.scalar("mine/final", 1.0)


def test_last_metrics_of_stopped_run_are_sent(tmp_path: Path):
    service = FakeService()
    train(tmp_path, track=[FakeTracker(service)], callbacks=[StopAt(110), LogsAtEnd()])
    assert service.points[-1].step == 110
    assert {"learn/critic_loss", "mine/final"} <= service.points[-1].numbers.keys()


def test_missing_tracked_run_is_recreated_with_all_points(tmp_path: Path):
    class RecreatesRun(FakeTracker):
        def start(self, run: str, known: str | None, config: Mapping[str, Any], folder: Path) -> tuple[str, str]:
            return ("run-2" if known == "run-1" else super().start(run, known, config, folder)[0]), ""

    run = train(tmp_path, track=[FakeTracker(FakeService())], callbacks=[StopAt(110)])
    service = FakeService()
    assert notices(run, track=[RecreatesRun(service)], callbacks=[StopAt(130)]) == [
        "The tracker fake: tracked run run-1 no longer exists; starting a new one."
    ]
    run.resume(track=[RecreatesRun(service)])
    check_sent_points(service, run, 130)
    assert (run.path / "tracking" / "fake.txt").read_text() == "run-2"


def test_tracker_failure_is_reported_once_and_points_resent(tmp_path: Path):
    service = FakeService()
    heard: list[str] = []

    def disturb(trainer: duetto.Trainer) -> None:
        service.refusing = 30 <= trainer.step < 110
        heard[:] = trainer.notices

    run = train(tmp_path, track=[FakeTracker(service)], callbacks=[disturb])
    check_sent_points(service, run)
    assert [notice for notice in heard if "failed" in notice] == [
        "The tracker fake failed: ConnectionError: nobody is there. The run continues, and Duetto sends the data again "
        "later."
    ]


def test_videos_are_sent_with_the_next_point(tmp_path: Path):
    service = FakeService()
    options: dict[str, Any] = {"steps": 90, "environment_options": {"max_episode_steps": 15}, "name": "filmed"}
    with pytest.raises(CrashError):
        train(tmp_path, track=[FakeTracker(service)], callbacks=[RecordVideo(40), CrashAt(55)], **options)
    Run(tmp_path / "filmed").resume(track=[FakeTracker(service)], callbacks=[RecordVideo(40)])
    videos = {point.step: [path.stem for path in point.videos] for point in service.points if point.videos}
    assert videos == {0: ["step-000000000000"], 50: ["step-000000000040"], 90: ["step-000000000080"]}


# ---------------------------------------------------------------------------------------------------- mistakes
@pytest.mark.parametrize(
    ("track", "message"),
    [
        (["wandbb"], "There is no tracker 'wandbb'. There are: wandb, mlflow, trackio."),
        ("wandb", r"track is 'wandb'; it must be a list, such as \['wandb'\]"),
        ([FakeTracker(FakeService()), FakeTracker(FakeService())], "with the same tracker twice"),
        ([FakeTracker], "There is no tracker <class"),
        ([Misnamed(FakeService())], r"A tracker has the name 'my/tracker'\. Use letters, digits"),
    ],
)
def test_invalid_tracker_is_refused_before_writing(tmp_path: Path, track: Any, message: str):
    with pytest.raises(UsageError, match=message):
        train(tmp_path, track=track)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["mlflow", "trackio"])
def test_missing_tracker_package_names_install_command(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("duetto.trackers.base.find_spec", lambda _: None)
    with pytest.raises(
        UsageError, match=rf"needs {name}, which is not installed\. Install: {re.escape(install(name))}"
    ):
        train(tmp_path, track=[name])
    assert not list(tmp_path.iterdir())


def test_failed_tracker_start_ends_run_before_first_step(tmp_path: Path):
    class Closed(FakeTracker):
        def start(self, *_: Any) -> tuple[str, str]:
            raise PermissionError("no key")

    with pytest.raises(UsageError, match="The tracker fake cannot start: PermissionError: no key"):
        train(tmp_path, name="closed", track=[Closed(FakeService())])
    assert not (tmp_path / "closed" / "metrics.jsonl").read_bytes()
    service = FakeService()
    run = Run(tmp_path / "closed").resume(track=[FakeTracker(service)], callbacks=[StopAt(50)])
    with pytest.raises(UsageError, match=r"no key. To start a new tracked run instead, remove .*fake\.txt"):
        run.resume(track=[Closed(FakeService())])


def test_damaged_or_linked_tracking_id_is_refused(tmp_path: Path):
    run = train(tmp_path, track=[FakeTracker(FakeService())], callbacks=[StopAt(50)])
    path = run.path / "tracking" / "fake.txt"
    assert path.read_text() == "run-1"
    for content in ("", "../x", "x" * 129):
        path.write_text(content)
        with pytest.raises(UsageError, match=r"fake\.txt is damaged. Remove it"):
            run.resume(track=[FakeTracker(FakeService())])
    for linked in (path, path.parent):
        linked.rename(tmp_path / "elsewhere")
        linked.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(DuettoError, match="is a link"):
            run.resume(track=[FakeTracker(FakeService())])
        linked.unlink()
        (tmp_path / "elsewhere").rename(linked)
