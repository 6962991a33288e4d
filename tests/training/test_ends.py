"""What is of a run's end alone: its last policy's evaluation, its last line of metrics. Who continues has neither."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from line_environment import Line
from small_runs import CrashAt, CrashError, StopAt, assert_same, checkpoints, train

import duetto
from duetto.callbacks import StopWithoutImprovement, TimeLimit
from duetto.runs.run import Run
from duetto.training import evaluator as evaluator_module
from duetto.training.evaluation import Evaluation
from duetto.training.trainer import Trainer


def steps(run: Run) -> list[float]:
    return [row["step"] for row in run.evaluations()]


def give(monkeypatch: pytest.MonkeyPatch, *returns: float) -> None:
    """To the evaluations, in order."""
    left = iter(returns)

    def scored(*_: Any) -> Evaluation:
        return Evaluation(np.array([next(left)]), np.array([10]))

    monkeypatch.setattr(evaluator_module, "evaluate", scored)


def test_the_last_policy_of_a_run_that_was_stopped_is_evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    give(monkeypatch, *range(9))
    run = train(tmp_path, callbacks=[StopAt(50)])
    assert steps(run) == [0, 50]
    assert run.agent("best").step == 50
    assert steps(train(tmp_path, callbacks=[TimeLimit(1e-9)])) == [0, 1]
    assert steps(train(tmp_path, callbacks=[StopAt(60)])) == [0, 60]  # of the timetable: not twice
    assert steps(train(tmp_path, callbacks=[StopAt(50)], evaluate_every=0)) == []


def test_going_on_it_is_a_run_that_was_never_stopped(tmp_path: Path):
    whole = train(tmp_path, callbacks=[StopWithoutImprovement(9)])
    run = train(tmp_path, callbacks=[StopAt(50), StopWithoutImprovement(9)])
    assert steps(run) == [0, 50]
    assert steps(run.resume(callbacks=[StopAt(50)])) == [0, 51]
    assert_same(whole, run.resume(callbacks=[StopWithoutImprovement(9)]))


def test_the_best_of_a_part_that_was_lost_is_no_more_the_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Its parameters stayed, and those of the best evaluation that is in the table were gone."""
    give(monkeypatch, -50.0, -10.0, -85.0, -90.0, -95.0, -99.0)
    with pytest.raises(CrashError):
        train(tmp_path, name="run", callbacks=[CrashAt(70)])
    run = Run(tmp_path / "run")
    assert checkpoints(run).load_best().step == 60
    run.resume(actor_learning_rate=1e-5)
    assert [row["mean_return"] for row in run.evaluations()] == [-50, -85, -90, -95, -99]
    assert (checkpoints(run).load_best().step, checkpoints(run).load_best().info) == (0, {"mean_return": -50.0})


class Counts(duetto.Callback):
    """How often it was called."""

    def __init__(self) -> None:
        self.calls = {"on_evaluation": 0, "on_step": 0}

    def on_evaluation(self, trainer: Trainer) -> None:
        self.calls["on_evaluation"] += 1

    def on_step(self, trainer: Trainer) -> None:
        self.calls["on_step"] += 1

    def state_dict(self) -> dict[str, Any]:
        return dict(self.calls)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.calls = dict(state)


class Saving(duetto.Callback):
    """It makes a checkpoint with each evaluation, and in a step that says where it is."""

    def __init__(self) -> None:
        self.made: list[Path] = []

    def on_evaluation(self, trainer: Trainer) -> None:
        self.made.append(trainer.checkpoint())

    def on_step(self, trainer: Trainer) -> None:
        if trainer.step == 70:
            self.made.append(trainer.checkpoint())


@pytest.mark.parametrize("crash", [65, 75])
def test_a_checkpoint_of_a_hook_has_all_callbacks_of_that_step(tmp_path: Path, crash: int):
    """Those behind the one that asked for it had not been called yet, and never were after a kill."""
    options: dict[str, Any] = {"steps": 100, "evaluate_every": 30, "checkpoint_every": 0}
    undisturbed, saving = Counts(), Saving()
    train(tmp_path, name="whole", callbacks=[saving, undisturbed], **options)
    assert [path.name[-2:] for path in saving.made] == ["00", "30", "60", "70", "90", "00"]
    with pytest.raises(CrashError):
        train(tmp_path, name="run", callbacks=[Saving(), Counts(), CrashAt(crash)], **options)
    assert checkpoints(Run(tmp_path / "run")).steps()[-1] == crash - 5
    counts = Counts()
    Run(tmp_path / "run").resume(callbacks=[Saving(), counts])
    assert counts.calls == undisturbed.calls == {"on_evaluation": 5, "on_step": 100}


def test_the_last_line_is_of_the_end_and_going_on_the_lines_are_those_of_a_run_without_it(tmp_path: Path):
    for end in (40, 110):
        run = train(tmp_path, name=f"short{end}", steps=end, log_every=100, schedule_steps=200)
        assert [line["step"] for line in run.metrics()] == ([40] if end == 40 else [100, 110])
        assert "learn/critic_loss" in run.metrics()[-1]
        run.resume()  # complete
        assert [line["step"] for line in run.metrics()] == ([40] if end == 40 else [100, 110])
    whole = train(tmp_path, name="whole", log_every=100, evaluate_every=0)
    stopped = train(tmp_path, log_every=100, evaluate_every=0, callbacks=[StopAt(150)])
    assert [line["step"] for line in stopped.metrics()] == [100, 150]
    assert_same(whole, stopped.resume())


class Waited(Line):
    """Line, where a person presses Ctrl-C in the step of an evaluation that comes after so many resets of those."""

    after: int = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._evaluated = seed is not None and seed >= 100
        if self._evaluated:
            Waited.after -= 1
            if not Waited.after:
                os.kill(os.getpid(), signal.SIGINT)
        return super().reset(seed=seed, options=options)


@pytest.mark.parametrize(("resets", "step"), [(1, 0), (2, 60)])
def test_ctrl_c_in_an_evaluation_breaks_it_off_and_loses_nothing(tmp_path: Path, resets: int, step: int):
    """Whoever ends a run may kill it soon: the checkpoint comes first, and who continues makes the evaluation."""
    trainers: list[Trainer] = []

    class Starting(duetto.Callback):
        def on_start(self, trainer: Trainer) -> None:
            trainers.append(trainer)

    Waited.after = resets
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, name="broken", environment=Waited, callbacks=[Starting()], checkpoint_every=1000)
    run = Run(tmp_path / "broken", environment=Waited)
    assert trainers[0].notices == [
        f"The evaluation at step {step} was broken off. To make it: duetto evaluate {run.path}"
    ]
    assert steps(run) == [0][:step]
    assert trainers[0].step == step
    Waited.after = 0
    assert_same(train(tmp_path, name="whole", environment=Waited, checkpoint_every=1000), run.resume())


def test_an_evaluation_that_a_callback_asks_for_is_whole(tmp_path: Path):
    trainers: list[Trainer] = []

    class Asking(duetto.Callback):
        def on_start(self, trainer: Trainer) -> None:
            trainers.append(trainer)

        def on_step(self, trainer: Trainer) -> None:
            if trainer.step == 40:
                Waited.after = 1
                trainer.evaluate()

    Waited.after = 0
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, name="asked", environment=Waited, callbacks=[Asking()])
    run = Run(tmp_path / "asked", environment=Waited)
    assert trainers[0].notices == []
    assert steps(run) == [0, 40]


def test_ctrl_c_breaks_off_the_evaluation_of_a_run_that_was_stopped(tmp_path: Path):
    trainers: list[Trainer] = []
    Waited.after = 2
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, name="stopped", environment=Waited, callbacks=[StopAt(50), trainers.append])
    run = Run(tmp_path / "stopped", environment=Waited)
    assert steps(run) == [0]
    assert trainers[0].notices[-1].startswith("The evaluation at step 50 was broken off. To make it: ")
    assert run.metrics()[-1]["step"] == 50
    assert_same(train(tmp_path, environment=Waited), run.resume())
