"""Callbacks: what is called when, with a state that continues as if nothing had happened; numbers of the user's own."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_runs import AtStart, CrashAt, CrashError, StopAt, assert_same, checkpoints, small, train

import duetto
from duetto.errors import UsageError
from duetto.runs.run import Run
from duetto.training.callbacks import HOOKS
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


def notices(run: Run, callbacks: Any = (), **options: Any) -> list[str]:
    """What is said while a run continues to its end."""
    said: list[list[str]] = []
    run.resume(callbacks=[AtStart(lambda trainer: said.append(trainer.notices)), *callbacks], **options)
    return said[0]


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


@pytest.mark.parametrize("crash", [41, 79, 80, 81, 199])
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


@pytest.mark.parametrize("crash", [41, 100])
def test_a_state_decides_when_the_run_stops(tmp_path: Path, crash: int):
    undisturbed = train(tmp_path, name="whole", callbacks=[Patient(90)])
    assert checkpoints(undisturbed).steps()[-1] == 120
    with pytest.raises(CrashError):
        train(tmp_path, name="killed", callbacks=[Patient(90), CrashAt(crash)])
    run = Run(tmp_path / "killed")
    assert notices(run, [Patient(90)]) == ["The run stops at step 120. Its patience is at an end."]
    assert_same(undisturbed, run)


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


def test_a_checkpoint_without_callbacks_takes_new_ones(tmp_path: Path):
    run = train(tmp_path, callbacks=[StopAt(60)])
    assert notices(run, [Diary()]) == []


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


class Elsewhere(duetto.Callback):
    """As in Stable-Baselines3."""

    def on_step(self, trainer: Trainer) -> None: ...

    def _on_rollout_end(self) -> None: ...


class Unheard(duetto.Callback):
    def on_success(self, trainer: Trainer) -> None: ...


class Called(duetto.Callback):
    def __call__(self, trainer: Trainer) -> None: ...


@pytest.mark.parametrize(
    ("callbacks", "message"),
    [
        ([Patient], r"Patient is a class. Hand over an object of it: Patient\(...\)"),
        (Patient(3), r"must be a list, such as \[Patient\]"),
        ([3], "3 is no callback"),
        ([Misspelt()], "Misspelt has on_evaluated, which is no hook. Hooks are on_start"),
        ([Elsewhere()], "Elsewhere has _on_rollout_end, which is no hook. Hooks are on_start"),
        ([Unheard()], "Unheard has on_success, which is no hook. Hooks are on_start, on_step, "),
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


class Once(duetto.Callback):
    """Does something once, in one of its hooks."""

    def __init__(self, act: Any) -> None:
        self.act, self.done = act, False

    def do(self, trainer: Trainer) -> None:
        if not self.done:
            self.done = True
            self.act(trainer)


def once(hook: str, act: Any) -> Any:
    return type("Once", (Once,), {hook: Once.do})(act)


@pytest.mark.parametrize(
    ("hook", "act", "sentence"),
    [
        ("on_start", lambda trainer: trainer.stepper.obs, "no observation before its first reset.* first on_step on"),
    ],
)
def test_what_is_too_early_or_has_no_end_is_refused(tmp_path: Path, hook: str, act: Any, sentence: str):
    with pytest.raises(UsageError, match=sentence):
        train(tmp_path, steps=60, callbacks=[once(hook, act)])


def test_an_evaluation_at_the_start_is_that_of_step_0(tmp_path: Path):
    run = train(tmp_path, steps=60, evaluate_every=30, callbacks=[once("on_start", Trainer.evaluate)])
    assert [row["step"] for row in run.evaluations()] == [0, 30, 60]


@pytest.mark.parametrize("algorithm", ["ppo", "td3"])
def test_a_checkpoint_asked_for_in_the_middle_of_learning_is_of_the_whole_step(tmp_path: Path, algorithm: str):
    """Of PPO's rollout it had a part that no run could continue from."""
    how: dict[str, Any] = {"steps": 60, "evaluate_every": 0, "checkpoint_every": 0}
    whole = train(tmp_path, small(algorithm), name="whole", **how)
    asking = once("on_update", Trainer.checkpoint)
    with pytest.raises(CrashError):
        train(tmp_path, small(algorithm), name="killed", callbacks=[asking, CrashAt(50)], **how)
    killed = Run(tmp_path / "killed")
    assert checkpoints(killed).steps()
    killed.resume()
    assert_same(whole, killed)


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
    own = [{name: value for name, value in line.items() if name.startswith("mine/")} for line in run.metrics()]
    assert [one.get("mine/evaluated") for one in own] == [1, 2, 3, 4, None]
    assert [one.get("mine/step") for one in own] == [10, 29.5, 49.5, 60, None]
    assert own[-1] == {"mine/end": 7}
    assert [line["step"] for line in run.metrics()] == [20, 40, 60, 60, 60]
    run.resume(steps=80, callbacks=[Last()], progress=False)
    whole = train(tmp_path / "whole", steps=80, callbacks=[Last()], **options)
    assert [line["step"] for line in run.metrics()] == [line["step"] for line in whole.metrics()]
    steps = [[line["mine/step"] for line in one.metrics() if "mine/step" in line] for one in (run, whole)]
    assert steps[0] == steps[1] == [10, 29.5, 49.5, 69.5, 80]
