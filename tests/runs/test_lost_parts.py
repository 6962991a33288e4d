"""A run that loses a part which holds state returns to its newest checkpoint, and its numbers do not change."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from small_runs import StopAt, assert_same, train

from duetto.errors import PartLostError
from duetto.runs.run import Run
from duetto.training.callbacks import Callback
from duetto.training.trainer import Trainer

GONE = "A shard of the memory died."


class Loses:
    """A part, when the run first comes to each of these steps."""

    def __init__(self, *steps: int) -> None:
        self.steps = list(steps)
        self.folders: set[Path] = set()

    def __call__(self, trainer: Trainer) -> None:
        if self.steps and trainer.step >= self.steps[0]:
            self.steps.pop(0)
            raise PartLostError(GONE)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if GONE in record.getMessage()]


@pytest.fixture
def undisturbed(tmp_path: Path) -> Run:
    return train(tmp_path / "undisturbed")


def test_it_returns_and_no_number_changes(tmp_path: Path, undisturbed: Run, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING, "duetto"):
        run = train(tmp_path, callbacks=[Loses(90, 130, 199)])
    assert_same(run, undisturbed)
    froms = ("of step 80", "of step 120", "of step 160")
    assert said(caplog) == [f"{GONE} The run continues from its checkpoint {step}." for step in froms]


def test_before_the_first_checkpoint_it_begins_anew(tmp_path: Path, undisturbed: Run, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING, "duetto"):
        run = train(tmp_path, callbacks=[Loses(30)])
    assert_same(run, undisturbed)
    assert said(caplog) == [f"{GONE} The run continues from its start."]


def test_a_run_that_is_resumed_returns_too(tmp_path: Path, undisturbed: Run):
    run = train(tmp_path, callbacks=[StopAt(100)])
    run.resume(callbacks=[Loses(150)])
    assert_same(run, undisturbed)


def test_it_ends_where_it_comes_no_further(tmp_path: Path):
    loses = Loses(*[90] * 9)
    with pytest.raises(PartLostError, match=GONE):
        train(tmp_path, callbacks=[loses])
    assert len(loses.steps) == 9 - 4  # three times from the checkpoint of step 80
    run = Run(tmp_path / "td3-Pendulum-v1-s0")
    run.resume()  # nothing is lost
    assert run.metrics()[-1]["step"] == 200


class Counts(Callback):
    """Steps, in a state that may start empty."""

    def __init__(self, empty: bool) -> None:
        self.steps, self.empty = 0, empty

    def on_step(self, trainer: Trainer) -> None:
        self.steps += trainer.step > 0

    def state_dict(self) -> dict[str, int]:
        return {} if self.empty and not self.steps else {"steps": self.steps}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.steps = state["steps"]


def test_callbacks_do_not_count_what_was_lost(tmp_path: Path):
    """Neither where the run starts anew, nor where a checkpoint has their state, nor where a resumed run is lost."""
    counts = Counts(empty=False)
    run = train(tmp_path, steps=150, callbacks=[counts, Loses(90)])
    assert counts.steps == 150
    run.resume(steps=200, callbacks=[counts, Loses(160)])
    assert counts.steps == 200
