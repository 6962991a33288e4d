"""What every tracker gets: each point, and after a kill some of them twice."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from small_runs import CrashAt, CrashError, StopAt, notices, train
from tracked_runs import evaluations_of, lines_of

import duetto
from duetto.callbacks import RecordVideo
from duetto.errors import DuettoError, UsageError
from duetto.install_hint import install
from duetto.runs.run import Run
from duetto.trackers import Point, Tracker


class Service:
    """A tracked run in memory, which outlives the processes that send to it."""

    def __init__(self) -> None:
        self.points: list[Point] = []
        self.calls: list[str] = []
        self.config: Mapping[str, Any] = {}
        self.best: list[int] = []
        self.refusing = False

    @property
    def steps(self) -> list[int]:
        return [point.step for point in self.points]


class Fake(Tracker):
    name = "fake"

    def __init__(self, service: Service) -> None:
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


class Sliding(Fake):
    name: ClassVar[Any] = "my/tracker"


class Nameless(Fake):
    name: ClassVar[Any] = None


class Numbered(Fake):
    def start(self, run: str, known: str | None, config: Mapping[str, Any], folder: Path) -> Any:
        return 7, ""


def check_all(service: Service, run: Run, *ends: int) -> None:
    """Each line of metrics and each evaluation is there; and those where the run had ended before."""
    assert sorted(set(service.steps)) == sorted({*lines_of(run), *evaluations_of(run), *ends})
    for point in (one for one in service.points if one.step not in ends):
        line, evaluation = lines_of(run).get(point.step, {}), evaluations_of(run).get(point.step, {})
        expected = {name: value for name, value in (line | evaluation).items() if not name.startswith("time/")}
        assert {name: point.numbers[name] for name in expected} == pytest.approx(expected)
        assert {name for name in point.numbers if not name.startswith("time/")} == expected.keys()


# ---------------------------------------------------------------------------------------------------- what is sent
def test_config_metrics_evaluations_scalars_and_the_best(tmp_path: Path):
    service = Service()
    run = train(
        tmp_path, track=[Fake(service)], callbacks=[lambda trainer: trainer.log.scalar("arm/torque", trainer.step)]
    )
    check_all(service, run)
    assert service.points[0].numbers.keys() == {
        f"evaluation/{name}" for name in ("mean_return", "std_return", "min_return", "max_return", "mean_length")
    }
    assert service.points[1].numbers["arm/torque"] == 12.5
    assert service.config["algorithm"]["hidden"] == [32, 32]
    assert service.calls == ["start td3-Pendulum-v1-s0 None", "finish False"]
    assert service.best == [run.agent("best").step]


@pytest.mark.parametrize("crash", [30, 61, 79, 119, 199])
def test_a_run_that_is_killed_continues_in_the_same_tracked_run(tmp_path: Path, crash: int):
    service = Service()
    with pytest.raises(CrashError):
        train(tmp_path, name="killed", track=[Fake(service)], callbacks=[CrashAt(crash)])
    assert service.calls[1] == "finish True"
    before, sent = len(service.points), service.steps
    run = Run(tmp_path / "killed").resume(track=[Fake(service)])
    check_all(service, run)
    assert 0 < before < len(service.points)
    again = service.steps[before:]
    assert again == sorted(set(again))
    assert min(again) > crash // 40 * 40 - 40 or min(again) == min(sent)  # nothing from before the last checkpoint
    assert service.calls[2:] == ["start killed run-1", "finish False"]
    ended = len(service.points)
    run.resume(track=[Fake(service)])  # it is done, and has nothing new
    assert set(service.steps[ended:]) <= {200}


def test_what_was_logged_before_it_is_sent_and_what_is_logged_without_it_is_not(tmp_path: Path):
    service = Service()
    run = train(tmp_path, callbacks=[StopAt(110)])
    run.resume(track=[Fake(service)], callbacks=[StopAt(130)])
    assert service.steps == [0, 25, 50, 60, 75, 100, 120, 125, 130]
    [note] = notices(run, callbacks=[StopAt(160)])
    assert note.startswith("This run was tracked by fake, and continues without.")
    assert service.steps[-1] == 130
    assert notices(run, track=[Fake(service)]) == ["Tracked by fake: in memory"]
    steps = sorted({*lines_of(run), *evaluations_of(run), 130})
    assert sorted(set(service.steps)) == [step for step in steps if not 130 < step < 160]


def test_the_last_line_of_a_stopped_run_is_sent_too(tmp_path: Path):
    service = Service()
    train(tmp_path, track=[Fake(service)], callbacks=[StopAt(110)])
    assert service.points[-1].step == 110
    assert "learn/critic_loss" in service.points[-1].numbers


class AtTheEnd(duetto.Callback):
    def on_end(self, trainer: duetto.Trainer) -> None:
        trainer.log.scalar("mine/final", 1.0)


def test_what_a_callback_logs_at_the_end_is_sent_too(tmp_path: Path):
    service = Service()
    train(tmp_path, steps=60, callbacks=[AtTheEnd()], track=[Fake(service)])
    assert service.points[-1].numbers["mine/final"] == 1.0


def test_a_service_that_has_the_run_no_more_gets_all_in_another_one(tmp_path: Path):
    class Anew(Fake):
        def start(self, run: str, known: str | None, config: Mapping[str, Any], folder: Path) -> tuple[str, str]:
            return ("run-2" if known == "run-1" else super().start(run, known, config, folder)[0]), ""

    run = train(tmp_path, track=[Fake(Service())], callbacks=[StopAt(110)])
    service = Service()
    assert notices(run, track=[Anew(service)], callbacks=[StopAt(130)]) == [
        "The tracker fake: tracked run run-1 no longer exists; starting a new one."
    ]
    run.resume(track=[Anew(service)])
    check_all(service, run, 130)
    assert (run.path / "tracking" / "fake.txt").read_text() == "run-2"


def test_a_service_that_fails_is_said_once_and_gets_it_later(tmp_path: Path):
    service = Service()
    heard: list[str] = []

    def disturb(trainer: duetto.Trainer) -> None:
        service.refusing = 30 <= trainer.step < 110
        heard[:] = trainer.notices

    run = train(tmp_path, track=[Fake(service)], callbacks=[disturb])
    check_all(service, run)
    assert [notice for notice in heard if "failed" in notice] == [
        "The tracker fake failed: ConnectionError: nobody is there. The run continues, and sends again what was not "
        "accepted."
    ]


def test_a_new_tracked_run_gets_what_a_service_missed(tmp_path: Path):
    service = Service()
    service.refusing = True
    run = train(tmp_path, track=[Fake(service)])
    assert service.points == []
    service.refusing = False
    (run.path / "tracking" / "fake.txt").unlink()
    run.resume(track=[Fake(service)])
    check_all(service, run)


def test_videos_come_with_the_next_point(tmp_path: Path):
    service = Service()
    options: dict[str, Any] = {"steps": 90, "environment_options": {"max_episode_steps": 15}, "name": "filmed"}
    with pytest.raises(CrashError):
        train(tmp_path, track=[Fake(service)], callbacks=[RecordVideo(40), CrashAt(55)], **options)
    Run(tmp_path / "filmed").resume(track=[Fake(service)], callbacks=[RecordVideo(40)])
    videos = {point.step: [path.stem for path in point.videos] for point in service.points if point.videos}
    assert videos == {0: ["step-000000000000"], 50: ["step-000000000040"], 90: ["step-000000000080"]}


# ---------------------------------------------------------------------------------------------------- mistakes
@pytest.mark.parametrize(
    ("track", "message"),
    [
        (["wandbb"], "There is no tracker 'wandbb'. There are: wandb, mlflow, trackio."),
        ("wandb", r"track is 'wandb'; it must be a list, such as \['wandb'\]"),
        ([Fake(Service()), Fake(Service())], "with one tracker twice"),
        (None, r"track is None; it must be a list"),
        ([Fake], "There is no tracker <class"),
        ([3], "There is no tracker 3"),
        ([Sliding(Service())], r"A tracker has the name 'my/tracker'\. Use letters, digits"),
        ([Nameless(Service())], "A tracker has the name ''. Use letters"),
    ],
)
def test_what_is_no_tracker_is_refused_before_anything_is_made(tmp_path: Path, track: Any, message: str):
    with pytest.raises(UsageError, match=message):
        train(tmp_path, track=track)
    assert not list(tmp_path.iterdir())


def test_an_id_that_is_none_is_refused(tmp_path: Path):
    with pytest.raises(UsageError, match="The tracker fake gave its run the id 7"):
        train(tmp_path, track=[Numbered(Service())])


@pytest.mark.parametrize("name", ["wandb", "mlflow", "trackio"])
def test_a_missing_extra_is_named_with_its_command(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("duetto.trackers.base.find_spec", lambda _: None)
    with pytest.raises(
        UsageError, match=rf"needs {name}, which is not installed\. Install: {re.escape(install(name))}"
    ):
        train(tmp_path, track=[name])
    assert not list(tmp_path.iterdir())


def test_one_that_cannot_begin_ends_the_run_before_its_first_step(tmp_path: Path):
    class Closed(Fake):
        def start(self, *_: Any) -> tuple[str, str]:
            raise PermissionError("no key")

    with pytest.raises(UsageError, match="The tracker fake cannot start: PermissionError: no key"):
        train(tmp_path, name="closed", track=[Closed(Service())])
    assert not (tmp_path / "closed" / "metrics.jsonl").read_bytes()
    service = Service()
    run = Run(tmp_path / "closed").resume(track=[Fake(service)], callbacks=[StopAt(50)])
    with pytest.raises(UsageError, match=r"no key. To start a new tracked run instead, remove .*fake\.txt"):
        run.resume(track=[Closed(Service())])


@pytest.mark.parametrize("content", ["", "../x", "a b", "x" * 129])
def test_a_record_that_is_none_is_refused(tmp_path: Path, content: str):
    run = train(tmp_path, track=[Fake(Service())], callbacks=[StopAt(50)])
    path = run.path / "tracking" / "fake.txt"
    assert path.read_text() == "run-1"
    path.write_text(content)
    with pytest.raises(UsageError, match=r"fake\.txt is damaged. Remove it"):
        run.resume(track=[Fake(Service())])


@pytest.mark.parametrize("name", ["tracking/fake.txt", "tracking"])
def test_a_record_that_is_a_link_is_refused(tmp_path: Path, name: str):
    run = train(tmp_path, track=[Fake(Service())], callbacks=[StopAt(50)])
    path = run.path / name
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DuettoError, match="is a link"):
        run.resume(track=[Fake(Service())])
