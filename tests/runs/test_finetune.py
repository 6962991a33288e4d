"""Runs that start from another run's networks, and the end of schedules in resumed runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_run import same
from line_environment import Line
from small_runs import CrashAt, CrashError, StopAt, checkpoints, notices, outcome, small, train
from test_run import edit

from duetto.errors import CheckpointError, UsageError
from duetto.runs.run import Run
from duetto.training.trainer import Trainer

RUN_OPTIONS: dict[str, Any] = {"steps": 90, "evaluate_every": 60, "checkpoint_every": 30}


@pytest.fixture(scope="module")
def source_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(tmp_path_factory.mktemp("made"), small(normalize_observations="collected"), steps=100)


def train_from(folder: Path, source_run: Run, algorithm: Any = None, **options: Any) -> tuple[Run, dict[str, Any]]:
    """Return a run that starts from another run, and its state at its first step."""
    seen: dict[str, Any] = {}

    def look(trainer: Trainer) -> None:
        if not seen:
            seen.update(trainer.learner.state_dict(), notices=list(trainer.notices), rows=trainer.memory.written.sum())

    algorithm = algorithm or small(normalize_observations="collected", random_steps=0, learning_starts=10**6)
    return train(folder, algorithm, from_run=source_run, callbacks=[look], **RUN_OPTIONS | options), seen


def parameters(run: Run, checkpoint: str) -> Any:
    loaded = checkpoints(run).load_best() if checkpoint == "best" else checkpoints(run).load_latest(memory=False)
    return loaded.state["learner"]["parameters"]


@pytest.mark.parametrize("checkpoint", ["last", "best", "80"])
def test_from_run_copies_networks_and_records_their_source(source_run: Run, tmp_path: Path, checkpoint: str):
    run, seen = train_from(tmp_path, source_run, from_checkpoint=checkpoint)
    if checkpoint != "80":
        assert same(seen["parameters"], parameters(source_run, checkpoint))
    agent = source_run.agent(checkpoint)
    assert run.evaluations()[0]["mean_return"] == source_run.evaluate(1, checkpoint).mean_return
    began = Run(run.path).config.began_from
    assert began is not None
    assert len(Run(run.path).config.signature or "") == 64
    assert began == {
        "run": str(source_run.path.absolute()),
        "checkpoint": checkpoint,
        "step": agent.step,
    }
    assert not seen["optimizers"]["actor"]["steps"]
    assert seen["notices"][1:] == []  # the first notice says that there will be no update
    run.resume(steps=95)
    assert Run(run.path).config.began_from is not None


def test_from_run_killed_before_first_checkpoint_restarts_from_source(source_run: Run, tmp_path: Path):
    options: dict[str, Any] = RUN_OPTIONS | {"from_run": source_run}
    with pytest.raises(CrashError):
        train(tmp_path, source_run.config.algorithm, name="killed", callbacks=[CrashAt(20)], **options)
    whole = train(tmp_path, source_run.config.algorithm, name="whole", **options)
    again = Run(tmp_path / "killed").resume()
    assert same(outcome(again)["state"]["learner"], outcome(whole)["state"]["learner"])


@pytest.mark.parametrize(
    ("algorithm", "options", "sentence"),
    [
        ({}, {"environment": Line}, "Line has the observation space"),
        ({"hidden": (16,)}, {}, "do not fit this network: missing [], unknown"),
        ({"hidden": (16, 16)}, {"from_checkpoint": "best"}, "This run cannot start from"),
        ({"normalize_observations": "off"}, {}, "has statistics of the observations"),
        ({}, {"from_checkpoint": "7"}, "has no checkpoint at step 7"),
    ],
)
def test_incompatible_source_run_is_refused_before_writing(
    source_run: Run, tmp_path: Path, algorithm: dict[str, Any], options: dict[str, Any], sentence: str
):
    agent = small(**{"normalize_observations": "collected"} | algorithm)
    with pytest.raises((UsageError, CheckpointError)) as refusal:
        train(tmp_path, agent, from_run=source_run, **RUN_OPTIONS | options)
    assert sentence in str(refusal.value)
    assert not list(tmp_path.iterdir())


def test_from_checkpoint_requires_from_run(tmp_path: Path):
    with pytest.raises(UsageError, match="--from-checkpoint needs the run"):
        train(tmp_path, **RUN_OPTIONS, from_checkpoint=7)
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------------------------------------------- schedules
def learning_rates(run: Run) -> dict[int, float]:
    return {line["step"]: line["learn/actor_learning_rate"] for line in run.metrics()}


def test_more_steps_stretch_schedules_with_notice(tmp_path: Path):
    algorithm = small(learning_rate_decay="linear", actor_learning_rate=0.01, exploration_final_scale=0.5)
    run = train(tmp_path, algorithm, steps=100, evaluate_every=0)
    assert notices(run, steps=200) == [
        "From here, schedules end at step 200, not at 100. Set schedule_steps to 100 in config.yaml to keep them."
    ]
    assert learning_rates(run)[150] == pytest.approx(0.0025)


def test_edited_schedule_steps_are_reported(tmp_path: Path):
    run = train(tmp_path, small(learning_rate_decay="linear"), steps=100, evaluate_every=0, callbacks=[StopAt(60)])
    said = notices(edit(run, {"run.schedule_steps": 200}), [StopAt(80)])
    assert said[0].startswith("From here, schedules end at step 200, not at 100.")
    history = Run(run.path).config.history
    assert [event.what for event in history.changed] == ["schedules end at step 200, not at 100"]
