"""The promise also in pre-training: killed or stopped, and continued with."""

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


@pytest.fixture(scope="module")
def demos(tmp_path_factory: pytest.TempPathFactory) -> str:
    return recorded(tmp_path_factory.mktemp("demonstrations") / "cartpole")


class StopAfter:
    """A callback that ends the run after so many updates."""

    def __init__(self, updates: int) -> None:
        self.updates = updates

    def __call__(self, trainer: Trainer) -> None:
        if trainer.learner.updates == self.updates:
            trainer.stop()


@pytest.mark.parametrize("name", LEARNERS)
def test_stopped_in_pretraining(tmp_path: Path, demos: str, name: str):
    """In the middle, twice; after its last update; and before the first step."""
    agent = small(name, **LEARNERS[name] | {"demonstrations": demos})
    whole = train(tmp_path, agent, name="whole", **OPTIONS)
    assert [row["step"] for row in whole.evaluations()] == [0, 0, 60, 120, 180, 200]
    for where, stops in (("middle", (2, 4)), ("end", (6,))):
        run = train(tmp_path, agent, name=where, callbacks=[StopAfter(stops[0])], **OPTIONS)
        for updates in stops[1:]:
            run.resume(callbacks=[StopAfter(updates)])
        assert checkpoints(run).steps() == [0]
        assert checkpoints(run).load_latest().state["learner"]["updates"] == stops[-1]
        assert_same(whole, run.resume(), where)
    run = train(tmp_path, agent, name="steps", callbacks=[StopAt(2)], **OPTIONS)
    assert checkpoints(run).steps() == [0, 2]
    assert_same(whole, run.resume(), "stopped after the first step")


class CrashAfter(StopAfter):
    """Ends it as kill -9 does, so far as one process can."""

    def __call__(self, trainer: Trainer) -> None:
        if trainer.learner.updates == self.updates:
            raise CrashError


@pytest.mark.parametrize("name", LEARNERS)
def test_killed_in_pretraining(tmp_path: Path, demos: str, name: str):
    """What it has learned until then is kept as often as a run's steps are."""
    agent = small(name, **LEARNERS[name] | {"demonstrations": demos})
    options = OPTIONS | {"checkpoint_every": 2}
    whole = train(tmp_path, agent, name="whole", **options)
    with pytest.raises(CrashError):
        train(tmp_path, agent, name="killed", callbacks=[CrashAfter(5)], **options)
    run = Run(tmp_path / "killed")
    assert checkpoints(run).load_latest().state["learner"]["updates"] == 4
    assert_same(whole, run.resume(), "killed")


def stopped(folder: Path) -> Run:
    recorded(folder / "demos")
    agent = small("dqfd", demonstrations=str(folder / "demos"))
    return train(folder, agent, name="run", callbacks=[StopAt(50)], **OPTIONS)


def test_other_demonstrations_are_refused(tmp_path: Path):
    """Nothing is changed: with the old ones the run continues."""
    run = stopped(tmp_path)
    (tmp_path / "demos").rename(tmp_path / "old")
    recorded(tmp_path / "demos", episodes(2))
    with pytest.raises(CheckpointError, match="The contents of the demonstrations have changed"):
        run.resume()
    shutil.rmtree(tmp_path / "demos")
    (tmp_path / "old").rename(tmp_path / "demos")
    assert checkpoints(run.resume()).steps()[-1] == 200
