"""What was done to a run after it had started is in its config.yaml, and whoever compares or repeats runs says it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_runs import StopAt, small, train

from duetto.environments import VecEnv
from duetto.runs.run import Run
from duetto.storage import repeat_command
from duetto.storage.config import Config
from duetto.storage.resume_history import Event, History
from duetto.storage.safe_yaml import read_yaml
from duetto.tools.plot.curves import curves
from duetto.training import checkpoints as checkpoints_module

RATE = Event(70, "algorithm.actor_learning_rate was 0.001, is now 0.5")


def history(run: Run) -> History:
    return Config.load(run.path / "config.yaml").history


def said(run: Run) -> str:
    return " ".join(repeat_command.of_its_history(read_yaml(run.path / "config.yaml")))


@pytest.fixture
def made(tmp_path: Path) -> Run:
    return train(tmp_path, steps=100, name="made", callbacks=[StopAt(70)])


def test_changed_options_stay_known(made: Run, tmp_path: Path):
    made.resume(actor_learning_rate=0.5)
    assert history(made) == History(changed=(RATE,))
    made.resume(steps=110)
    assert history(made) == History(changed=(RATE,))
    assert said(made).startswith(f"Changed during the run: {RATE}. config.yaml has the new values")
    # Its config says the same options as that of a run that had them from the start:
    other = train(tmp_path, small(actor_learning_rate=0.5), steps=110, seed=1)
    labels = [curve.label for curve in curves([made.path, other.path])]
    assert labels == [f"td3, changed at {RATE}", "td3"]


def test_what_came_after_the_checkpoint_that_is_gone_back_to_is_no_part_of_it():
    before = History((RATE, Event(90, "x")), (Event(90, "y"),))
    assert before.going_on(80, ["z"], []) == History((RATE, Event(80, "z")), ())
    assert before.going_on(90, ["x"], []) == before  # the same again, of a run that was killed before it was made


def test_schedules_that_were_stretched(tmp_path: Path):
    run = train(tmp_path, small("ppo", learning_rate_decay="linear"), steps=32)
    run.resume(steps=64)
    assert history(run).changed == (Event(32, "schedules end at step 64, not at 32"),)


def test_what_does_not_go_on_exactly(made: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checkpoints_module, "packages", lambda _: {"numpy": "0.1"})
    made.resume()
    [event] = history(made).inexact
    assert event.what.startswith("Computed otherwise since the checkpoint at step 70: numpy was ")
    assert f"Not repeatable exactly: {event}" in said(made)


def test_environments_that_were_lost_with_their_actor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    whole, steps = VecEnv.step, []

    def losing(self: VecEnv, action: Any) -> Any:
        result = whole(self, action)
        steps.append(1)
        self.aborted = np.array([True]) if len(steps) == 7 else None
        return result

    monkeypatch.setattr(VecEnv, "step", losing)
    run = train(tmp_path, steps=20, evaluate_every=0)
    lost = Event(6, "environments lost with their actor started new episodes (1)")
    assert history(run) == History(inexact=(lost,))
    assert f"Not repeatable exactly: {lost}" in said(run)
