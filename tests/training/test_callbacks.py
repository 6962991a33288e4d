"""Callbacks: what is called when, with a state that continues as if nothing had happened; numbers of the user's own."""

from __future__ import annotations

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
from duetto.training.evaluation import Evaluation, Evaluator
from duetto.training.trainer import Trainer

FEW: dict[str, Any] = {"steps": 6, "evaluate_every": 3, "checkpoint_every": 2, "log_every": 2}


class Diary(duetto.Callback):
    """Its state is all that it was called for; and one number for the metrics at each step."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.hooks}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen = state["seen"]

    @property
    def hooks(self) -> list[str]:
        """Without those that a process has of its own."""
        return [entry for entry in self.seen if not entry.startswith(("start", "end"))]


def noting(hook: str) -> Any:
    def note(self: Diary, trainer: Trainer) -> None:
        self.seen.append(f"{hook.removeprefix('on_')} {trainer.step}")
        if hook == "on_step":
            trainer.log.scalar("diary/entries", len(self.hooks))

    return note


for _hook in HOOKS:
    setattr(Diary, _hook, noting(_hook))


class Patient(duetto.Callback):
    """Ends the run after so many updates, however often that is interrupted."""

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


# ---------------------------------------------------------------------------------------------------- what is called
def test_what_is_called_when(tmp_path: Path):
    diary = Diary()
    plain: list[str] = diary.seen
    algorithm = small(random_steps=2, learning_starts=4, batch_size=2)
    train(tmp_path, algorithm, callbacks=[lambda trainer: plain.append(f"function {trainer.step}"), diary], **FEW)
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


@pytest.mark.parametrize("crash", [41, 80, 199])
def test_after_a_kill_it_is_called_as_in_an_undisturbed_run(tmp_path: Path, crash: int):
    whole, killed, resumed = Diary(), Diary(), Diary()
    undisturbed = train(tmp_path, name="whole", callbacks=[whole])
    with pytest.raises(CrashError):
        train(tmp_path, name="killed", callbacks=[killed, CrashAt(crash)])
    run = Run(tmp_path / "killed").resume(callbacks=[resumed])
    assert resumed.hooks == whole.hooks
    assert len(whole.hooks) > 300
    assert_same(undisturbed, run)  # its states, and its numbers in metrics.jsonl
    assert run.metrics()[-1]["diary/entries"] == undisturbed.metrics()[-1]["diary/entries"]


def test_two_of_a_class_have_a_state_each(tmp_path: Path):
    run = train(tmp_path, callbacks=[Patient(500), Patient(20)])
    state = checkpoints(run).load_latest().state["callbacks"]
    assert {name: int(one["made"][0]) for name, one in state.items()} == {"Patient": 20, "Patient 2": 20}
    again = [Patient(500), Patient(25)]
    run.resume(callbacks=again)
    assert [int(one.made[0]) for one in again] == [25, 25]


# ---------------------------------------------------------------------------------------------------- resuming
def test_without_its_callback_a_run_says_so_once_and_keeps_the_state(tmp_path: Path):
    run = train(tmp_path, callbacks=[Patient(500), StopAt(60)])
    [said] = notices(run, [StopAt(100)])
    assert "has a state of Patient, which this run continues without. Hand them over again" in said
    assert len(notices(run, [Diary(), StopAt(150)])) == 1
    later = Patient(500)
    assert "state of Diary" in notices(run, [later])[0]
    assert int(later.made[0]) == 30 + (200 - 150)  # updates at steps 31 to 60, and from 151 on


# ---------------------------------------------------------------------------------------------------- mistakes
@pytest.mark.parametrize("value", [{1, 2}, (1, 2), np.float64(1.5), object()])
def test_a_state_that_cannot_be_saved_shows_at_the_start(tmp_path: Path, value: Any):
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


@pytest.mark.parametrize(
    ("callbacks", "message"),
    [
        ([Patient], r"Patient is a class. Hand over an object of it: Patient\(...\)"),
        (Patient(3), r"must be a list, such as \[Patient\]"),
        ([3], "3 is no callback"),
        ([Misspelt()], "Misspelt has on_evaluated, which is no hook. Hooks are on_start"),
        ([Called()], "Called has __call__, which is no hook"),
    ],
)
def test_what_is_no_callback_is_refused_before_anything_is_made(tmp_path: Path, callbacks: Any, message: str):
    with pytest.raises(UsageError, match=message):
        train(tmp_path, callbacks=callbacks)
    assert not list(tmp_path.iterdir())
    run = train(tmp_path, steps=40)
    with pytest.raises(UsageError, match=message):
        run.resume(steps=50, callbacks=callbacks)


@pytest.mark.parametrize("hook", HOOKS)
def test_an_error_in_a_hook_comes_with_its_own_traceback_and_the_checkpoint_is_kept(tmp_path: Path, hook: str):
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
    kept = {"on_start": [], "on_checkpoint": [80, 120], "on_end": [160, 200]}.get(hook, [40, 80])
    where = f"its checkpoint of step {kept[-1]} is kept" if kept else "before its first checkpoint"
    assert where in note
    run = Run(tmp_path / "failed")
    assert checkpoints(run).steps() == kept
    assert_same(train(tmp_path, name="whole"), run.resume())


# ---------------------------------------------------------------------------------------------------- scalars
def test_a_scalar_is_the_mean_since_the_last_line_in_every_log(tmp_path: Path):
    def measure(trainer: Trainer) -> None:
        trainer.log.scalar("arm/torque", trainer.step)
        if trainer.step == 30:
            trainer.log.scalar("seldom", np.float32(0.5))

    run = train(tmp_path, steps=80, callbacks=[measure])
    # Functions are called after the line of their step: the first line has steps 1 to 24, the next 25 to 49.
    assert [line["arm/torque"] for line in run.metrics()] == [12.5, 37.0, 62.0, 77.5]
    assert [line.get("seldom") for line in run.metrics()] == [None, 0.5, None, None]
    [board] = (run.path / "tensorboard").iterdir()
    assert b"arm/torque" in board.read_bytes()


@pytest.mark.parametrize("name", ["", "/x", "x/", "a//b", "../x", "_private", "a\nb", "ü?", 3])
def test_what_is_no_name(tmp_path: Path, name: Any):
    with pytest.raises(UsageError, match="cannot be a scalar's name"):
        train(tmp_path, callbacks=[lambda trainer: trainer.log.scalar(name, 1.0)])


@pytest.mark.parametrize("value", [None, np.zeros(3), 1j, [1]])
def test_what_is_no_number(tmp_path: Path, value: Any):
    with pytest.raises(UsageError, match=r"(?s)scalar 'mine' is .*; it must be one number"):
        train(tmp_path, callbacks=[lambda trainer: trainer.log.scalar("mine", value)])


class Last(duetto.Callback):
    """It logs where nothing comes behind it any more."""

    def __init__(self) -> None:
        self.evaluated = 0

    def on_evaluation(self, trainer: Trainer) -> None:
        self.evaluated += 1
        trainer.log.scalar("mine/evaluated", self.evaluated)

    def on_step(self, trainer: Trainer) -> None:
        trainer.log.scalar("mine/step", trainer.step)

    def on_end(self, trainer: Trainer) -> None:
        trainer.log.scalar("mine/end", 7)


def test_what_is_logged_last_is_not_lost(tmp_path: Path):
    options: dict[str, Any] = {"evaluate_every": 20, "log_every": 20}
    run = train(tmp_path, steps=60, callbacks=[Last()], **options)
    assert [line["mine/evaluated"] for line in run.metrics()] == [1, 2, 3, 4]
    assert [line["mine/step"] for line in run.metrics()] == [10, 29.5, 49.5, 60]
    assert [line.get("mine/end") for line in run.metrics()] == [None, None, None, 7]
    assert [line["step"] for line in run.metrics()] == [20, 40, 60, 60]
    run.resume(steps=80, callbacks=[Last()], progress=False)
    assert [line["step"] for line in run.metrics()] == [20, 40, 60, 80, 80]
    assert [line["mine/step"] for line in run.metrics()] == [10, 29.5, 49.5, 69.5, 80]


def test_before_the_first_reset_there_is_no_observation_but_an_evaluation(tmp_path: Path):
    with pytest.raises(UsageError, match=r"no observation before its first reset.* first on_step on"):
        train(tmp_path, callbacks=[AtStart(lambda trainer: trainer.stepper.obs)])
    run = train(tmp_path, steps=60, evaluate_every=30, callbacks=[AtStart(Trainer.evaluate)])
    assert [row["step"] for row in run.evaluations()] == [0, 30, 60]


class Saving(duetto.Callback):
    """It asks for a checkpoint in each hook that `asks` names."""

    def __init__(self, *asks: str) -> None:
        self.asks, self.made = asks, list[str]()

    def ask(self, hook: str, trainer: Trainer) -> None:
        if hook in self.asks:
            self.made.append(trainer.checkpoint().name[-2:])

    def on_update(self, trainer: Trainer) -> None:
        self.ask("on_update", trainer)

    def on_evaluation(self, trainer: Trainer) -> None:
        self.ask("on_evaluation", trainer)

    def on_step(self, trainer: Trainer) -> None:
        self.ask(f"on_step {trainer.step}", trainer)


@pytest.mark.parametrize("algorithm", ["ppo", "td3"])
def test_a_checkpoint_asked_for_in_the_middle_of_learning_is_of_the_whole_step(tmp_path: Path, algorithm: str):
    """Of PPO's rollout it had a part that no run could continue from."""
    how: dict[str, Any] = {"steps": 60, "evaluate_every": 0, "checkpoint_every": 0}
    whole = train(tmp_path, small(algorithm), name="whole", **how)
    with pytest.raises(CrashError):
        train(tmp_path, small(algorithm), name="killed", callbacks=[Saving("on_update"), CrashAt(50)], **how)
    killed = Run(tmp_path / "killed")
    assert checkpoints(killed).steps()
    assert_same(whole, killed.resume())


@pytest.mark.parametrize("crash", [65, 75])
def test_a_checkpoint_of_a_hook_has_all_callbacks_of_that_step(tmp_path: Path, crash: int):
    """Those behind the one that asked for it had not been called yet, and never were after a kill."""
    options: dict[str, Any] = {"steps": 100, "evaluate_every": 30, "checkpoint_every": 0}
    undisturbed, resumed, saving = Diary(), Diary(), Saving("on_evaluation", "on_step 70")
    train(tmp_path, name="whole", callbacks=[saving, undisturbed], **options)
    assert saving.made == ["00", "30", "60", "70", "90", "00"]
    with pytest.raises(CrashError):
        train(tmp_path, name="run", callbacks=[Saving(*saving.asks), Diary(), CrashAt(crash)], **options)
    assert checkpoints(Run(tmp_path / "run")).steps()[-1] == crash - 5
    Run(tmp_path / "run").resume(callbacks=[Saving(*saving.asks), resumed])
    assert resumed.hooks == undisturbed.hooks


# ---------------------------------------------------------------------------------------------------- ready callbacks
@pytest.fixture
def returns(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Evaluations at steps 0, 20, 40 ... have these mean returns, in every process."""

    def given(*values: float) -> None:
        def evaluate(self: Evaluator, policy: Any, step: int, *how: Any) -> Evaluation:
            scores = Evaluation(np.array([values[step // 20]]), np.array([10]))
            monkeypatch.setattr(evaluation, "evaluate", lambda *_: scores)
            return real(self, policy, step, *how)

        real = Evaluator.evaluate
        monkeypatch.setattr(Evaluator, "evaluate", evaluate)

    return given


def test_it_stops_at_a_return_and_says_why(tmp_path: Path, returns: Any):
    returns(0.0, 7.0, 9.5, 10.0, 12.0, 0.0)
    run = train(tmp_path, callbacks=[StopAtReturn(10)], steps=100, evaluate_every=20)
    assert checkpoints(run).steps()[-1] == 60
    assert notices(run, [StopAtReturn(12)]) == [
        "The run stops at step 80. The evaluation's mean return, 12, has reached 12."
    ]
    assert notices(run) == []
    assert checkpoints(run).steps()[-1] == 100
    without = train(tmp_path, callbacks=[StopAtReturn(10), StopAt(35)], evaluate_every=0)
    assert notices(without, [StopAtReturn(10)]) == ["StopAtReturn needs evaluations, and evaluate_every is 0."]


def test_a_time_limit_counts_over_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    now = [0.0]
    monkeypatch.setattr(trainer_module.time, "perf_counter", lambda: now[0])

    class Ticking(duetto.Callback):
        def on_step(self, trainer: Trainer) -> None:
            now[0] += 1.0

    run = train(tmp_path, callbacks=[Ticking(), TimeLimit(55.0), StopAt(50)])
    assert checkpoints(run).steps()[-1] == 50
    [why] = notices(run, [Ticking(), TimeLimit(55.0)])
    assert why.startswith("The run stops at step 55. It has worked for 55 seconds, its time limit.")
    assert notices(run, [Ticking(), TimeLimit(1e6)]) == []


def test_a_video_every_so_many_steps_changes_no_number(tmp_path: Path):
    options: dict[str, Any] = {"steps": 90, "environment_options": {"max_episode_steps": 15}, "num_envs": 2}
    whole = train(tmp_path, name="whole", **options)
    with pytest.raises(CrashError):
        train(tmp_path, name="filmed", callbacks=[RecordVideo(41), CrashAt(61)], **options)
    run = Run(tmp_path / "filmed").resume(callbacks=[RecordVideo(41)])
    videos = sorted(path.name for path in (run.path / "videos").iterdir())
    assert videos == [f"step-{step:012}.mp4" for step in (0, 42, 82)]
    assert_same(whole, run)


def test_an_environment_without_pictures_shows_before_the_first_step(tmp_path: Path):
    class Blind(Line):
        def render(self) -> None:
            return None

    with pytest.raises(DuettoError, match="render"):
        train(tmp_path, environment=Blind, name="blind", callbacks=[RecordVideo(50)])
    assert not (tmp_path / "blind" / "metrics.jsonl").read_bytes()


@pytest.mark.parametrize("make", [lambda: StopAtReturn("ten"), lambda: TimeLimit(0.0), lambda: RecordVideo(1.5)])
def test_what_makes_no_sense_is_refused(make: Any):
    with pytest.raises(UsageError, match="must be"):
        make()
