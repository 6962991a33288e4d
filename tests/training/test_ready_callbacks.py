"""The callbacks that come with Duetto: each ends, keeps or records at the right moment, also after a kill."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from line_environment import Line
from small_runs import AtStart, CrashAt, CrashError, StopAt, assert_same, checkpoints, train

import duetto
from duetto.callbacks import RecordVideo, StopAtReturn, TimeLimit
from duetto.errors import DuettoError, UsageError
from duetto.runs.run import Run
from duetto.training import evaluator as evaluator_module
from duetto.training import trainer as session_module
from duetto.training.evaluation import Evaluation
from duetto.training.trainer import Trainer


@pytest.fixture
def returns(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Evaluations at steps 0, 20, 40 ... have these mean returns, in every process."""

    def given(values: Sequence[float]) -> None:
        def evaluate(self: evaluator_module.Evaluator, policy: Any, step: int, *how: Any) -> Evaluation:
            scores = Evaluation(np.array([values[step // 20]]), np.array([10]))
            monkeypatch.setattr(evaluator_module, "evaluate", lambda *_: scores)
            return real(self, policy, step, *how)

        real = evaluator_module.Evaluator.evaluate
        monkeypatch.setattr(evaluator_module.Evaluator, "evaluate", evaluate)

    return given


OFTEN: dict[str, Any] = {"steps": 100, "evaluate_every": 20}


def said(run: Run, *callbacks: Any, **options: Any) -> list[str]:
    notices: list[list[str]] = []
    run.resume(callbacks=[AtStart(lambda trainer: notices.append(trainer.notices)), *callbacks], **options)
    return notices[0]


@pytest.mark.parametrize(
    ("callback", "options", "sentence"),
    [
        (StopAtReturn(1.0), {"evaluate_every": 0}, "StopAtReturn needs evaluations, and evaluate_every is 0"),
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
        lambda: TimeLimit(0.0),
        lambda: RecordVideo(1.5),
    ],
)
def test_what_makes_no_sense_is_refused(make: Any):
    with pytest.raises(UsageError, match="must be"):
        make()
