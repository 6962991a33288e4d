"""A run knows whether its environment comes back exactly, and a checkpoint of it does."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_runs import CrashAt, CrashError, assert_same, checkpoints, differences, outcome, train

from duetto.environments import Rehearsal
from duetto.runs.run import Run
from duetto.training.session import Session

sys.path.insert(0, str(Path(__file__).parents[1] / "environments"))

import hidden_environments as hidden

EVERY = {"evaluate_every": 0, "checkpoint_every": 40}


class Listening:
    """A callback that keeps what a run says, and when."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def __call__(self, session: Session) -> None:
        self.said = list(session.notices)


def seeded_train(*args: Any, **options: Any) -> Run:
    random.seed(3)
    np.random.seed(3)
    return train(*args, **options)


def stored(run: Run) -> tuple[bool | None, Any]:
    state = checkpoints(run).load_latest().state
    return state["session"]["exact"], state["stepper"]["environments"]


def test_a_run_says_once_that_resuming_begins_new_episodes_and_does_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(hidden.OfClass, "total", 0)  # what other tests leave may happen to be what a new process has
    heard = Listening()
    run = train(tmp_path, environment=hidden.OfClass, callbacks=[heard], **EVERY)
    [notice] = heard.said
    assert notice.startswith("OfClass does not come back exactly from its saved state (the observation")
    assert stored(run) == (False, None)
    run.resume(steps=320, callbacks=[heard])
    notice, again = heard.said  # it might have been mended
    assert notice.startswith("The state of OfClass could not be restored: the run goes on with new episodes")
    assert again.startswith("OfClass does not come back exactly")
    assert stored(run) == (False, None)


def test_an_environment_that_was_mended_is_exact_again(tmp_path: Path):
    heard = Listening()
    hidden.OfClass.total = 0  # or at a multiple of 97, after other tests, it looks exact once in a while
    train(tmp_path, environment=hidden.OfClass, name="run", **EVERY)
    run = Run(tmp_path / "run", hidden.Plain)
    run.resume(steps=320, callbacks=[heard])
    assert len(heard.said) == 1
    exact, environments = stored(run)
    assert exact is True
    assert environments is not None


@pytest.mark.parametrize(
    ("environment", "options"),
    [(hidden.Everything, EVERY), (hidden.OfNumpy, {})],  # evaluations draw from the same np.random
)
def test_a_run_on_an_exact_environment_says_nothing_and_goes_on_exactly(tmp_path: Path, environment: Any, options: Any):
    heard = Listening()
    with pytest.raises(CrashError):
        seeded_train(tmp_path, environment=environment, callbacks=[CrashAt(155)], name="crashed", **options)
    assert stored(Run(tmp_path / "crashed"))[1] is not None
    whole = seeded_train(tmp_path, environment=environment, callbacks=[heard], name="whole", **options)
    assert heard.said == []
    assert stored(whole)[0] is True
    run = Run(tmp_path / "crashed", environment)
    run.resume()
    assert_same(whole, run)


def test_numbers_are_those_without_a_rehearsal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    results = []
    for name in ("with", "without"):
        hidden.OfClass.total = 0
        run = seeded_train(tmp_path, environment=Mixed, name=name)
        results.append(outcome(run))
        del results[-1]["state"]["stepper"]["environments"]
        monkeypatch.setattr(Rehearsal, "begin", lambda *_: None)
    assert not differences(*results)


class Mixed(hidden.Everything):
    def _number(self) -> float:
        return super()._number() + hidden.OfClass._number(self)


def test_a_run_that_stopped_before_it_was_known_says_so_when_it_is_resumed(tmp_path: Path):
    with pytest.raises(CrashError):
        train(tmp_path, environment=hidden.Plain, callbacks=[CrashAt(50)], name="crashed", **EVERY)
    heard = Listening()
    run = Run(tmp_path / "crashed", hidden.Plain)
    assert stored(run)[0] is None
    run.resume(callbacks=[heard])
    [notice] = heard.said
    assert notice.startswith("The state of Plain was restored, but the run had stopped before it was found out")
    assert stored(run)[0] is True  # it was found out now
    run.resume(steps=240, callbacks=[heard])
    assert heard.said == []


def test_environments_that_the_tests_cover_are_not_rehearsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Rehearsal, "_watch", None)
    assert stored(train(tmp_path))[0] is True
