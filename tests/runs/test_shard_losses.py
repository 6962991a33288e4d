"""A run that loses a process with state (`ShardLostError`) returns to its newest checkpoint."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from small_runs import StopAt, assert_same, train

from duetto.errors import ShardLostError
from duetto.runs.run import Run
from duetto.training.callbacks import Callback
from duetto.training.trainer import Trainer

LOSS = "A shard of the memory died."


class ShardLossAt:
    """Raise ShardLostError when the run first reaches each of these steps."""

    def __init__(self, *steps: int) -> None:
        self.steps = list(steps)
        self.folders: set[Path] = set()

    def __call__(self, trainer: Trainer) -> None:
        if self.steps and trainer.step >= self.steps[0]:
            self.steps.pop(0)
            raise ShardLostError(LOSS)


def loss_notices(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if LOSS in record.getMessage()]


def test_run_is_unchanged_by_shard_losses(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """Before its first checkpoint a run restarts at step 0. A resumed run also returns to its checkpoint."""
    with caplog.at_level(logging.WARNING, "duetto"):
        run = train(tmp_path, callbacks=[ShardLossAt(30, 90, 130), StopAt(140)])
        run.resume(callbacks=[ShardLossAt(199)])
    assert_same(run, train(tmp_path / "undisturbed"))
    froms = ("start", "checkpoint of step 80", "checkpoint of step 120", "checkpoint of step 160")
    assert loss_notices(caplog) == [f"{LOSS} The run continues from its {where}." for where in froms]


def test_run_ends_after_repeated_losses_without_progress(tmp_path: Path):
    loses = ShardLossAt(*[90] * 9)
    with pytest.raises(ShardLostError, match=LOSS):
        train(tmp_path, callbacks=[loses])
    assert len(loses.steps) == 9 - 4  # three times from the checkpoint of step 80
    run = Run(tmp_path / "td3-Pendulum-v1-s0")
    run.resume()  # without a loss
    assert run.metrics()[-1]["step"] == 200


class StepCounter(Callback):
    """Counts steps."""

    steps = 0

    def on_step(self, trainer: Trainer) -> None:
        self.steps += trainer.step > 0

    def state_dict(self) -> dict[str, int]:
        return {"steps": self.steps}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.steps = state["steps"]


def test_callback_state_excludes_lost_steps(tmp_path: Path):
    """Tested with a loss in a new run and with a loss in a resumed run."""
    counts = StepCounter()
    run = train(tmp_path, steps=150, callbacks=[counts, ShardLossAt(90)])
    assert counts.steps == 150
    run.resume(steps=200, callbacks=[counts, ShardLossAt(160)])
    assert counts.steps == 200
