"""The callbacks that come with Duetto: each ends, keeps or records at the right moment, also after a kill."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from line_environment import Line
from small_runs import CrashAt, CrashError, StopAt, assert_same, checkpoints, train

import duetto
from duetto.callbacks import KeepCheckpoints, RecordVideo, StopAtReturn, StopWithoutImprovement, TimeLimit
from duetto.errors import CheckpointError, DuettoError, UsageError
from duetto.runs.run import Run
from duetto.training import evaluator as evaluator_module
from duetto.training import trainer as session_module
from duetto.training.evaluation import Evaluation
from duetto.training.trainer import Trainer


@pytest.fixture
def returns(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Evaluations at steps 0, 20, 40 ... have these mean returns, in every process."""

    def given(values: Sequence[float]) -> None:
        def begin(self: evaluator_module.Evaluations, snapshot: evaluator_module.Snapshot) -> None:
            scores = Evaluation(np.array([values[snapshot.step // 20]]), np.array([10]))
            monkeypatch.setattr(evaluator_module, "evaluate", lambda *_: scores)
            real(self, snapshot)

        real = evaluator_module.Evaluations.begin
        monkeypatch.setattr(evaluator_module.Evaluations, "begin", begin)

    return given


OFTEN: dict[str, Any] = {"steps": 100, "evaluate_every": 20}


def said(run: Run, *callbacks: Any, **options: Any) -> list[str]:
    notices: list[list[str]] = []
    run.resume(callbacks=callbacks, on_start=lambda trainer: notices.append(trainer.notices), **options)
    return notices[0]


@pytest.mark.parametrize(
    ("callback", "options", "sentence"),
    [
        (StopAtReturn(1.0), {"evaluate_every": 0}, "StopAtReturn needs evaluations, and evaluate_every is 0"),
        (StopWithoutImprovement(2), {"evaluate_every": 0}, "StopWithoutImprovement needs evaluations"),
        (KeepCheckpoints(2), {"checkpoint_every": 0}, "needs checkpoint_every, which is 0"),
    ],
)
def test_what_would_never_be_asked_says_so(
    tmp_path: Path, callback: duetto.Callback, options: dict[str, Any], sentence: str
):
    heard: list[list[str]] = []
    train(tmp_path, steps=40, callbacks=[callback, lambda trainer: heard.append(trainer.notices)], **options)
    assert [one for one in heard[0] if sentence in one]


def test_it_stops_at_a_return_and_says_why(tmp_path: Path, returns: Any):
    returns([0.0, 7.0, 9.5, 10.0, 12.0, 0.0])
    run = train(tmp_path, callbacks=[StopAtReturn(10)], **OFTEN)
    assert checkpoints(run).steps()[-1] == 60
    assert said(run, StopAtReturn(12)) == [
        "The run stops at step 80. The evaluation's mean return, 12, has reached 12."
    ]
    assert said(run) == []
    assert checkpoints(run).steps()[-1] == 100


def test_one_that_is_good_enough_from_the_start_makes_no_step(tmp_path: Path, returns: Any):
    returns([3.0] * 6)
    assert checkpoints(train(tmp_path, callbacks=[StopAtReturn(3)], **OFTEN)).steps() == [0]


def test_it_stops_without_improvement(tmp_path: Path, returns: Any):
    returns([1.0, 0.0, 2.0, 2.0, 1.9, 5.0])
    run = train(tmp_path, callbacks=[StopWithoutImprovement(2)], **OFTEN)
    assert checkpoints(run).steps()[-1] == 80  # equal is no better; and what was before 2.0 is forgotten


def test_a_little_better_is_not_better(tmp_path: Path, returns: Any):
    returns([1.0, 1.5, 2.1, 2.2, 3.0, 3.1])
    run = train(tmp_path, callbacks=[StopWithoutImprovement(2, least=1.0)], **OFTEN)
    assert checkpoints(run).steps()[-1] == 80  # 2.1 is better than 1.0; 2.2 and 3.0 are not by more than 1 than 2.1


def test_in_another_run_it_forgets_the_last(tmp_path: Path, returns: Any):
    patience = StopWithoutImprovement(2)
    returns([9.0, 8.0, 9.0])
    assert checkpoints(train(tmp_path, name="one", callbacks=[patience], **OFTEN)).steps()[-1] == 40
    assert checkpoints(train(tmp_path, name="two", callbacks=[patience], **OFTEN)).steps()[-1] == 40  # not 0


@pytest.mark.parametrize("crash", [41, 45, 79])
def test_after_a_kill_its_patience_is_what_it_was(tmp_path: Path, returns: Any, crash: int):
    returns([4.0, 3.0, 2.0, 1.0, 5.0, 6.0])
    whole = train(tmp_path, name="whole", callbacks=[StopWithoutImprovement(3)], **OFTEN)
    assert checkpoints(whole).steps()[-1] == 60
    with pytest.raises(CrashError):
        train(tmp_path, name="killed", callbacks=[CrashAt(min(crash, 59)), StopWithoutImprovement(3)], **OFTEN)
    run = Run(tmp_path / "killed")
    assert said(run, StopWithoutImprovement(3)) == [
        "The run stops at step 60. 3 evaluations in a row were no better than the mean return 4 before."
    ]
    assert_same(whole, run)


def test_a_time_limit_counts_over_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    now = [0.0]
    monkeypatch.setattr(session_module.time, "perf_counter", lambda: now[0])

    def tick(trainer: Trainer) -> None:
        now[0] += 1.0

    class Ticking(duetto.Callback):
        def on_step(self, trainer: Trainer) -> None:
            tick(trainer)

    run = train(tmp_path, callbacks=[Ticking(), TimeLimit(55.0), StopAt(50)])
    assert checkpoints(run).steps()[-1] == 50
    [why] = said(run, Ticking(), TimeLimit(55.0))
    assert why.startswith("The run stops at step 55. It has worked for 55 seconds, its time limit.")
    assert said(run, Ticking(), TimeLimit(1e6)) == []


def test_every_third_checkpoint_stays(tmp_path: Path):
    with pytest.raises(CrashError):
        train(tmp_path, name="kept", checkpoint_every=20, callbacks=[KeepCheckpoints(3), CrashAt(130)])
    run = Run(tmp_path / "kept").resume(callbacks=[KeepCheckpoints(3), StopAt(135)])
    assert checkpoints(run).steps() == [60, 120, 135]
    run.resume()  # without it, too
    assert checkpoints(run).steps() == [60, 120, 180, 200]
    assert run.agent(60).step == 60
    assert_same(train(tmp_path, name="whole", checkpoint_every=20), run)
    loaded = checkpoints(run).load(60)  # with its memory, also what the rings have written over since
    assert sum(int(segment["count"].sum()) for segment in loaded.segments) >= 60


def test_with_several_environments_it_is_the_first_step_behind(tmp_path: Path):
    run = train(tmp_path, num_envs=3, steps=130, checkpoint_every=20, callbacks=[KeepCheckpoints(2)])
    assert checkpoints(run).steps() == [42, 81, 120, 132]


def test_a_disk_that_refuses_the_mark_is_said(tmp_path: Path):
    def occupy(trainer: Trainer) -> None:
        (trainer.folder / "checkpoints").mkdir(exist_ok=True)
        (trainer.folder / "checkpoints" / ".tmp-step-000000000040.kept").mkdir(exist_ok=True)

    with pytest.raises(CheckpointError, match="mark that keeps the checkpoint at step 40 could not be written"):
        train(tmp_path, steps=100, callbacks=[KeepAgain(occupy), KeepCheckpoints(1)])


class KeepAgain(duetto.Callback):
    def __init__(self, act: Any) -> None:
        self.act = act

    def on_checkpoint(self, trainer: Trainer) -> None:
        self.act(trainer)


# ---------------------------------------------------------------------------------------------------- videos
def test_a_video_every_so_many_steps_changes_no_number(tmp_path: Path):
    options: dict[str, Any] = {"steps": 90, "environment_options": {"max_episode_steps": 15}, "num_envs": 2}
    whole = train(tmp_path, name="whole", **options)
    with pytest.raises(CrashError):
        train(tmp_path, name="filmed", callbacks=[RecordVideo(41), CrashAt(61)], **options)
    run = Run(tmp_path / "filmed").resume(callbacks=[RecordVideo(41)])
    assert sorted(path.name for path in (run.path / "videos").iterdir()) == [
        f"step-{step:012}.mp4" for step in (0, 42, 82)
    ]
    assert_same(whole, run)


def test_an_environment_without_pictures_shows_before_the_first_step(tmp_path: Path):
    class Blind(Line):
        def render(self) -> None:
            return None

    with pytest.raises(DuettoError, match="render"):
        train(tmp_path, environment=Blind, name="blind", callbacks=[RecordVideo(50)])
    assert not (tmp_path / "blind" / "metrics.jsonl").read_bytes()


# ---------------------------------------------------------------------------------------------------- mistakes
@pytest.mark.parametrize(
    "make",
    [
        lambda: StopAtReturn("ten"),
        lambda: StopWithoutImprovement(0),
        lambda: StopWithoutImprovement(2, least=-1.0),
        lambda: TimeLimit(0.0),
        lambda: KeepCheckpoints(0),
        lambda: RecordVideo(1.5),
    ],
)
def test_what_makes_no_sense_is_refused(make: Any):
    with pytest.raises(UsageError, match="must be"):
        make()
