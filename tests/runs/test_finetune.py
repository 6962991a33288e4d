"""Runs that start with another run's networks, and schedules that end where they would have ended."""

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

LATER: dict[str, Any] = {"steps": 90, "evaluate_every": 60, "checkpoint_every": 30}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(tmp_path_factory.mktemp("made"), small(normalize_observations="collected"), steps=100)


def begun(folder: Path, made: Run, algorithm: Any = None, **options: Any) -> tuple[Run, dict[str, Any]]:
    """A run that starts from another, and what it had before its first step."""
    seen: dict[str, Any] = {}

    def look(trainer: Trainer) -> None:
        if not seen:
            seen.update(trainer.learner.state_dict(), notices=list(trainer.notices), rows=trainer.memory.written.sum())

    algorithm = algorithm or small(normalize_observations="collected", random_steps=0, learning_starts=10**6)
    return train(folder, algorithm, from_run=made, callbacks=[look], **LATER | options), seen


def parameters(run: Run, checkpoint: str) -> Any:
    loaded = checkpoints(run).load_best() if checkpoint == "best" else checkpoints(run).load_latest(memory=False)
    return loaded.state["learner"]["parameters"]


@pytest.mark.parametrize("checkpoint", ["last", "best", "80"])
def test_it_begins_with_the_others_networks_and_says_where_they_are_from(made: Run, tmp_path: Path, checkpoint: str):
    run, seen = begun(tmp_path, made, from_checkpoint=checkpoint)
    if checkpoint != "80":
        assert same(seen["parameters"], parameters(made, checkpoint))
    agent = made.agent(checkpoint)
    assert run.evaluations()[0]["mean_return"] == made.evaluate(1, checkpoint).mean_return
    began = Run(run.path).config.began_from
    assert began is not None
    assert len(Run(run.path).config.signature or "") == 64
    assert began == {
        "run": str(made.path.absolute()),
        "checkpoint": checkpoint,
        "step": agent.step,
    }
    assert not seen["optimizers"]["actor"]["steps"]
    assert seen["notices"][1:] == []  # but that there will be no update
    run.resume(steps=95)
    assert Run(run.path).config.began_from is not None


def test_killed_before_its_first_checkpoint_it_begins_there_again(made: Run, tmp_path: Path):
    options: dict[str, Any] = LATER | {"from_run": made}
    with pytest.raises(CrashError):
        train(tmp_path, made.config.algorithm, name="killed", callbacks=[CrashAt(20)], **options)
    whole = train(tmp_path, made.config.algorithm, name="whole", **options)
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
def test_what_does_not_fit_is_refused_and_leaves_nothing(
    made: Run, tmp_path: Path, algorithm: dict[str, Any], options: dict[str, Any], sentence: str
):
    agent = small(**{"normalize_observations": "collected"} | algorithm)
    with pytest.raises((UsageError, CheckpointError)) as refusal:
        train(tmp_path, agent, from_run=made, **LATER | options)
    assert sentence in str(refusal.value)
    assert not list(tmp_path.iterdir())


def test_what_is_no_run(tmp_path: Path):
    with pytest.raises(UsageError, match="nowhere is no run to start from: it has no checkpoints"):
        train(tmp_path, from_run=tmp_path / "nowhere", **LATER)


def test_how_to_begin_is_nothing_without_a_run_to_begin_from(tmp_path: Path):
    with pytest.raises(UsageError, match="--from-checkpoint needs the run"):
        train(tmp_path, **LATER, from_checkpoint=7)
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------------------------------------------- schedules
def rates(run: Run) -> dict[int, float]:
    return {line["step"]: line["learn/actor_learning_rate"] for line in run.metrics()}


def test_more_steps_stretch_schedules_and_say_so(tmp_path: Path):
    algorithm = small(learning_rate_decay="linear", actor_learning_rate=0.01, exploration_final_scale=0.5)
    run = train(tmp_path, algorithm, steps=100, evaluate_every=0)
    assert notices(run, steps=200) == [
        "From here, schedules end at step 200, not at 100. Set schedule_steps to 100 in config.yaml to keep them."
    ]
    assert rates(run)[150] == pytest.approx(0.0025)


@pytest.mark.parametrize("how", ["steps", "schedule_steps", "in Python"])
def test_schedules_that_an_edit_moves_are_said_too(tmp_path: Path, how: str):
    run = train(tmp_path, small(learning_rate_decay="linear"), steps=100, evaluate_every=0, callbacks=[StopAt(60)])
    given = {}
    if how == "in Python":
        given["schedule_steps"] = 200
    else:
        run = edit(run, {f"run.{how}": 200})
    said = notices(run, [StopAt(80)], **given)
    assert said[0].startswith("From here, schedules end at step 200, not at 100.")
    history = Run(run.path).config.history
    assert [event.what for event in history.changed] == ["schedules end at step 200, not at 100"]


def test_where_nothing_is_measured_in_the_runs_length_nothing_is_said(tmp_path: Path):
    run = train(tmp_path, steps=100, evaluate_every=0)
    assert notices(run, steps=120) == []
