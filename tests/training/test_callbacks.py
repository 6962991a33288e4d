"""Callbacks: order of hooks, states in checkpoints, scalars, errors, and the built-in callbacks."""

from __future__ import annotations

import math
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from line_environment import Line
from small_runs import AtStart, CrashAt, CrashError, StopAt, assert_same, checkpoints, notices, small, train

import duetto
from duetto.callbacks import RecordVideo, StopAtReturn, TimeLimit
from duetto.errors import DuettoError, UsageError
from duetto.runs.run import Run
from duetto.training import evaluation
from duetto.training import trainer as trainer_module
from duetto.training.callbacks import HOOKS
from duetto.training.evaluation import Evaluation
from duetto.training.trainer import Trainer

SHORT_RUN: dict[str, Any] = {"steps": 6, "evaluate_every": 3, "checkpoint_every": 2, "log_every": 2}


class Diary(duetto.Callback):
    """Records the calls of its hooks, and saves them as its state. Logs a scalar at each step."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.hooks}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen = state["seen"]

    @property
    def hooks(self) -> list[str]:
        """The calls except `on_start` and `on_end`, which happen again in each process."""
        return [entry for entry in self.seen if not entry.startswith(("start", "end"))]


def recording(hook: str) -> Any:
    def note(self: Diary, trainer: Trainer) -> None:
        self.seen.append(f"{hook.removeprefix('on_')} {trainer.step}")
        if hook == "on_step":
            trainer.log.scalar("diary/entries", len(self.hooks))

    return note


for _hook in HOOKS:
    setattr(Diary, _hook, recording(_hook))


class Patient(duetto.Callback):
    """Ends the run after `updates` updates, counted across resumes."""

    def __init__(self, updates: int) -> None:
        self.updates, self.made = updates, np.zeros(1, np.int64)

    def on_update(self, trainer: Trainer) -> None:
        self.made += 1
        if self.made[0] == self.updates:
            trainer.stop("Its patience is at an end.")

    def state_dict(self) -> dict[str, Any]:
        return {"made": self.made}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.made = state["made"]


# ---------------------------------------------------------------------------------------------------- hooks
def test_callback_hooks_are_called_in_order(tmp_path: Path):
    diary = Diary()
    plain: list[str] = diary.seen
    algorithm = small(random_steps=2, learning_starts=4, batch_size=2)
    train(tmp_path, algorithm, callbacks=[lambda trainer: plain.append(f"function {trainer.step}"), diary], **SHORT_RUN)
    assert diary.seen == [
        *["start 0", "evaluation 0"],
        *["step 1", "function 1"],
        *["step 2", "checkpoint 2", "function 2"],
        *["evaluation 3", "step 3", "function 3"],
        *["step 4", "checkpoint 4", "function 4"],
        *["update 5", "step 5", "function 5"],
        *["update 6", "evaluation 6", "step 6", "checkpoint 6", "function 6"],
        "end 6",
    ]


def test_callbacks_of_one_class_have_separate_states(tmp_path: Path):
    run = train(tmp_path, callbacks=[Patient(500), Patient(20)])
    state = checkpoints(run).load_latest().state["callbacks"]
    assert {name: int(one["made"][0]) for name, one in state.items()} == {"Patient": 20, "Patient 2": 20}
    again = [Patient(500), Patient(25)]
    run.resume(callbacks=again)
    assert [int(one.made[0]) for one in again] == [25, 25]


# ---------------------------------------------------------------------------------------------------- resuming
def test_missing_callback_warns_once_and_its_state_is_kept(tmp_path: Path):
    run = train(tmp_path, callbacks=[Patient(500), StopAt(60)])
    [said] = notices(run, [StopAt(100)])
    assert "The run continues without the callbacks Patient of its checkpoint." in said
    assert len(notices(run, [Diary(), StopAt(150)])) == 1
    later = Patient(500)
    assert "without the callbacks Diary" in notices(run, [later])[0]
    assert int(later.made[0]) == 30 + (200 - 150)  # updates at steps 31 to 60, and from 151 on


# ---------------------------------------------------------------------------------------------------- errors
@pytest.mark.parametrize("value", [(1, 2), np.float64(1.5)])
def test_unsaveable_callback_state_is_refused_at_the_start(tmp_path: Path, value: Any):
    class Careless(duetto.Callback):
        def state_dict(self) -> dict[str, Any]:
            return {"best": value}

    with pytest.raises(UsageError, match=r"state of the callback Careless cannot be saved: best: .* plain data"):
        train(tmp_path, name="careless", callbacks=[Careless()])
    assert not (tmp_path / "careless" / "metrics.jsonl").read_bytes()


class Misspelt(duetto.Callback):
    def on_evaluated(self, trainer: Trainer) -> None: ...


class Called(duetto.Callback):
    def __call__(self, trainer: Trainer) -> None: ...


def test_invalid_callbacks_are_refused_before_writing(tmp_path: Path):
    run = train(tmp_path, steps=40)
    for callbacks, message in (
        ([Patient], r"Patient is a class. Give an object of this class: Patient\(...\)"),
        (Patient(3), r"must be a list, such as \[Patient\]"),
        ([3], "3 is not a callback"),
        ([Misspelt()], "Misspelt has on_evaluated, which is not a hook. Hooks are on_start"),
        ([Called()], "Called has __call__, which is not a hook"),
    ):
        wrong: Any = callbacks
        with pytest.raises(UsageError, match=message):
            train(tmp_path, callbacks=wrong)
        with pytest.raises(UsageError, match=message):
            run.resume(steps=50, callbacks=wrong)
    assert list(tmp_path.iterdir()) == [run.path]


@pytest.mark.parametrize(("hook", "kept"), [("on_start", []), ("on_step", [40, 80]), ("on_end", [160, 200])])
def test_hook_error_keeps_its_traceback_and_the_checkpoint(tmp_path: Path, hook: str, kept: list[int]):
    class Failing(duetto.Callback):
        pass

    def fail(self: Failing, trainer: Trainer) -> None:
        if trainer.step >= 95 or hook == "on_start":
            raise ZeroDivisionError("by hand")

    setattr(Failing, hook, fail)
    with pytest.raises(ZeroDivisionError, match="by hand") as failure:
        train(tmp_path, name="failed", callbacks=[Failing()])
    assert traceback.extract_tb(failure.tb)[-1].name == "fail"
    [note] = failure.value.__notes__
    assert (f"its checkpoint of step {kept[-1]} is kept" if kept else "before its first checkpoint") in note
    assert checkpoints(Run(tmp_path / "failed")).steps() == kept


# ---------------------------------------------------------------------------------------------------- scalars


class FinalScalars(duetto.Callback):
    """Logs scalars in the hooks that run last."""

    def __init__(self) -> None:
        self.evaluated = 0

    def on_evaluation(self, trainer: Trainer) -> None:
        self.evaluated += 1
        trainer.log.scalar("mine/evaluated", self.evaluated)

    def on_step(self, trainer: Trainer) -> None:
        trainer.log.scalar("mine/step", trainer.step)

    def on_end(self, trainer: Trainer) -> None:
        trainer.log.scalar("mine/end", 7)


def test_scalars_are_means_since_the_last_line(tmp_path: Path):
    options: dict[str, Any] = {"evaluate_every": 20, "log_every": 20}
    run = train(tmp_path, steps=60, callbacks=[FinalScalars()], **options)
    assert [line["mine/evaluated"] for line in run.metrics()] == [1, 2, 3, 4]
    assert [line["mine/step"] for line in run.metrics()] == [10, 29.5, 49.5, 60]
    assert [line.get("mine/end") for line in run.metrics()] == [None, None, None, 7]
    assert [line["step"] for line in run.metrics()] == [20, 40, 60, 60]
    [board] = (run.path / "tensorboard").iterdir()
    assert b"mine/end" in board.read_bytes()
    run.resume(steps=80, callbacks=[FinalScalars()], progress=False)
    assert [line["step"] for line in run.metrics()] == [20, 40, 60, 80, 80]
    assert [line["mine/step"] for line in run.metrics()] == [10, 29.5, 49.5, 69.5, 80]


class InfiniteScalar(duetto.Callback):
    def on_step(self, trainer: Trainer) -> None:
        trainer.log.scalar("mine", math.inf)


def test_infinite_scalar_survives_a_resume(tmp_path: Path):
    run = train(tmp_path, steps=60, evaluate_every=0, log_every=50, callbacks=[InfiniteScalar()])
    assert run.resume(steps=100, progress=False).metrics()[-1]["mine"] == math.inf


def test_on_start_allows_evaluation_but_no_observation(tmp_path: Path):
    with pytest.raises(UsageError, match=r"no observation before its first reset.* first on_step on"):
        train(tmp_path, callbacks=[AtStart(lambda trainer: trainer.stepper.obs)])
    run = train(tmp_path, steps=60, evaluate_every=30, callbacks=[AtStart(Trainer.evaluate)])
    assert [row["step"] for row in run.evaluations()] == [0, 30, 60]


# ---------------------------------------------------------------------------------------------------- checkpoints
class CheckpointRequests(duetto.Callback):
    """Requests a checkpoint in evaluations, at step 70, and in updates if `in_updates`."""

    def __init__(self, in_updates: bool = False) -> None:
        self.in_updates, self.made = in_updates, list[str]()

    def on_update(self, trainer: Trainer) -> None:
        if self.in_updates:
            trainer.checkpoint()

    def on_evaluation(self, trainer: Trainer) -> None:
        self.made.append(trainer.checkpoint().name[-2:])

    def on_step(self, trainer: Trainer) -> None:
        if trainer.step == 70:
            self.on_evaluation(trainer)


def test_checkpoint_requested_in_an_update_contains_the_whole_step(tmp_path: Path):
    how: dict[str, Any] = {"steps": 60, "evaluate_every": 0, "checkpoint_every": 0}
    whole = train(tmp_path, small("ppo"), name="whole", **how)
    with pytest.raises(CrashError):
        train(
            tmp_path, small("ppo"), name="killed", callbacks=[CheckpointRequests(in_updates=True), CrashAt(50)], **how
        )
    killed = Run(tmp_path / "killed")
    assert checkpoints(killed).steps()
    assert_same(whole, killed.resume())


def test_callbacks_of_killed_run_receive_the_same_hooks(tmp_path: Path):
    """A checkpoint that a hook requests also contains the states of the callbacks after it in the list."""
    options: dict[str, Any] = {"steps": 100, "evaluate_every": 30, "checkpoint_every": 0}
    undisturbed, resumed, saving = Diary(), Diary(), CheckpointRequests()
    whole = train(tmp_path, name="whole", callbacks=[saving, undisturbed], **options)
    assert saving.made == ["00", "30", "60", "70", "90", "00"]
    with pytest.raises(CrashError):
        train(tmp_path, name="run", callbacks=[CheckpointRequests(), Diary(), CrashAt(75)], **options)
    assert checkpoints(Run(tmp_path / "run")).steps()[-1] == 70
    run = Run(tmp_path / "run").resume(callbacks=[CheckpointRequests(), resumed])
    assert resumed.hooks == undisturbed.hooks
    assert_same(whole, run)  # with the callbacks' states, and their numbers in metrics.jsonl


def test_checkpoint_requested_when_one_is_due_is_the_only_one(tmp_path: Path):
    requested: list[Path] = []

    class Requests(duetto.Callback):
        def on_evaluation(self, trainer: Trainer) -> None:
            requested.append(trainer.checkpoint())

    train(tmp_path, steps=60, evaluate_every=30, checkpoint_every=30, callbacks=[Requests()])
    assert requested[-1].is_dir()


# ---------------------------------------------------------------------------------------------------- built-in
def test_stop_at_return_ends_the_run_with_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    scores = iter([0.0, 7.0, 9.5, 10.0, 12.0, 0.0])  # at steps 0, 20, 40 ...
    monkeypatch.setattr(evaluation, "evaluate", lambda *_: Evaluation(np.array([next(scores)]), np.array([10])))
    run = train(tmp_path, callbacks=[StopAtReturn(10)], steps=100, evaluate_every=20)
    assert checkpoints(run).steps()[-1] == 60
    assert notices(run, [StopAtReturn(12)]) == [
        "The run stops at step 80. The evaluation's mean return, 12, has reached 12."
    ]
    assert notices(run) == []
    assert checkpoints(run).steps()[-1] == 100
    without = train(tmp_path, callbacks=[StopAtReturn(10), StopAt(35)], evaluate_every=0)
    assert notices(without, [StopAtReturn(10)]) == ["StopAtReturn needs evaluations, and evaluate_every is 0."]


def test_time_limit_counts_across_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    now = [0.0]
    monkeypatch.setattr(trainer_module.time, "perf_counter", lambda: now[0])

    class ClockTick(duetto.Callback):
        def on_step(self, trainer: Trainer) -> None:
            now[0] += 1.0

    run = train(tmp_path, callbacks=[ClockTick(), TimeLimit(55.0), StopAt(50)])
    assert checkpoints(run).steps()[-1] == 50
    [why] = notices(run, [ClockTick(), TimeLimit(55.0)])
    assert why.startswith("The run stops at step 55. It has reached its time limit of 55 seconds.")
    assert notices(run, [ClockTick(), TimeLimit(1e6)]) == []


def test_record_video_leaves_training_unchanged(tmp_path: Path):
    options: dict[str, Any] = {"steps": 90, "environment_options": {"max_episode_steps": 15}, "num_envs": 2}
    whole = train(tmp_path, name="whole", **options)
    with pytest.raises(CrashError):
        train(tmp_path, name="filmed", callbacks=[RecordVideo(41), CrashAt(61)], **options)
    run = Run(tmp_path / "filmed").resume(callbacks=[RecordVideo(41)])
    videos = sorted(path.name for path in (run.path / "videos").iterdir())
    assert videos == [f"step-{step:012}.mp4" for step in (0, 42, 82)]
    assert_same(whole, run)


def test_record_video_without_images_fails_before_training(tmp_path: Path):
    class WithoutImages(Line):
        def render(self) -> None:
            return None

    with pytest.raises(DuettoError, match="render"):
        train(tmp_path, environment=WithoutImages, name="blind", callbacks=[RecordVideo(50)])
    assert not (tmp_path / "blind" / "metrics.jsonl").read_bytes()


@pytest.mark.parametrize("make", [lambda: StopAtReturn("ten"), lambda: TimeLimit(0.0), lambda: RecordVideo(1.5)])
def test_invalid_arguments_of_built_in_callbacks_are_refused(make: Any):
    with pytest.raises(UsageError, match="must be"):
        make()
