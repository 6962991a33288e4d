"""Exact resume in pre-training, and with changed demonstrations."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from demonstrated import CHOICES, CUT, SEQUENCES, episodes, recorded
from small_runs import CrashError, StopAt, assert_same, checkpoints, small, train

from duetto.errors import CheckpointError
from duetto.runs.run import Run
from duetto.training.trainer import Trainer

LEARNERS: dict[str, dict[str, Any]] = {
    "dqfd": CHOICES | {"importance_anneal_samples": 50, "pretraining_updates": 6},
    "r2d3": SEQUENCES | CHOICES | {"pretraining_updates": 6},
}
OPTIONS: dict[str, Any] = {"environment": "CartPole-v1", "num_envs": 2} | CUT


class StopAfter:
    """A callback that stops the run after `updates` updates."""

    def __init__(self, updates: int) -> None:
        self.updates = updates

    def __call__(self, trainer: Trainer) -> None:
        if trainer.learner.updates == self.updates:
            trainer.stop()


class CrashAfter(StopAfter):
    """A callback that ends the run like `kill -9` after `updates` updates."""

    def __call__(self, trainer: Trainer) -> None:
        if trainer.learner.updates == self.updates:
            raise CrashError


@pytest.mark.parametrize("name", LEARNERS)
def test_resume_is_exact_after_stops_and_kill_in_pretraining(tmp_path: Path, demos: str, name: str):
    """Stop twice, kill, and stop after the first steps. In pre-training, `checkpoint_every` counts updates."""
    agent = small(name, **LEARNERS[name] | {"demonstrations": demos})
    options = OPTIONS | {"checkpoint_every": 2}
    whole = train(tmp_path, agent, name="whole", **options)
    assert [row["step"] for row in whole.evaluations()] == [0, 0, 60, 120, 180, 200]
    run = train(tmp_path, agent, name="run", callbacks=[StopAfter(1)], **options)
    run.resume(callbacks=[StopAfter(3)])
    with pytest.raises(CrashError):
        run.resume(callbacks=[CrashAfter(5)])
    assert checkpoints(run).steps() == [0]
    assert checkpoints(run).load_latest().state["learner"]["updates"] == 4
    run.resume(callbacks=[StopAt(2)])
    assert_same(whole, run.resume())


def train_until_step_50(folder: Path) -> Run:
    recorded(folder / "demos")
    agent = small("dqfd", demonstrations=str(folder / "demos"))
    return train(folder, agent, name="run", callbacks=[StopAt(50)], **OPTIONS)


def test_resume_with_changed_demonstrations_is_refused(tmp_path: Path):
    """The run continues once the old demonstrations are back."""
    run = train_until_step_50(tmp_path)
    (tmp_path / "demos").rename(tmp_path / "old")
    recorded(tmp_path / "demos", episodes(2))
    with pytest.raises(CheckpointError, match="The contents of the demonstrations have changed"):
        run.resume()
    shutil.rmtree(tmp_path / "demos")
    (tmp_path / "old").rename(tmp_path / "demos")
    assert checkpoints(run.resume()).steps()[-1] == 200
