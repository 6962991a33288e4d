"""Evaluations beside the run: each one's row, of its own step, whatever dies, and whoever continues."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from line_environment import Line
from simulated import Rates
from small_runs import CrashAt, CrashError, StopAt, assert_same, checkpoints, small, train
from test_cluster_runs import STEADY, Simulation

import duetto
from duetto.cluster import config as options
from duetto.cluster import evaluator
from duetto.cluster.evaluator import EvaluatorActor, RemoteEvaluator
from duetto.errors import EnvironmentFailedError
from duetto.runs.run import Run
from duetto.training import evaluator as training_evaluator
from duetto.training.evaluation import Evaluation

OFTEN = Rates(dies_before=0.02, dies_after=0.02, machine_dies=0)
HOW: dict[str, Any] = {"num_envs": 2, "steps": 200, "evaluate_every": 40, "evaluation_episodes": 3}


@pytest.fixture(autouse=True)
def a_step_at_a_time(monkeypatch: pytest.MonkeyPatch):
    """An evaluation is asked for again at every vector step, and looked for at every one of the run."""
    monkeypatch.setattr(options, "find_spec", lambda name: name)  # Ray, whether or not it is installed
    monkeypatch.setattr(evaluator, "PIECE", 1e-9)
    monkeypatch.setattr(training_evaluator, "POLL_SECONDS", 0.0)


@pytest.mark.parametrize("seed", range(3))
def test_they_are_the_same_whatever_dies(tmp_path: Path, seed: int):
    quiet = train(tmp_path, environment=Line, name="quiet", cluster=Simulation(rates=STEADY), **HOW)
    cluster = Simulation(seed=seed, rates=OFTEN)
    said: list[str] = []
    listen = [lambda trainer: said.extend(trainer.notices)]
    run = train(tmp_path, environment=Line, name="beside", cluster=cluster, callbacks=listen, **HOW)
    assert any(notice.startswith("The actor that evaluates died") for notice in said)
    assert_same(quiet, run)
    assert [row["step"] for row in run.evaluations()] == [0, 40, 80, 120, 160, 200]


def test_the_run_goes_on_meanwhile_and_the_row_is_of_its_own_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(evaluator, "PIECE", 10.0)  # each is one answer
    seen: list[tuple[int, int]] = []

    def look(trainer: Any) -> None:
        if trainer.last_evaluation is not None:
            seen.append((trainer.step, trainer.last_evaluation[0]))

    cluster = Simulation(rates=STEADY, block=1)
    run = train(tmp_path, environment=Line, cluster=cluster, callbacks=[look], **HOW)
    assert [row["step"] for row in run.evaluations()] == [0, 40, 80, 120, 160, 200]
    first = {of: at for at, of in reversed(seen)}
    assert all(first[step] > step for step in (40, 80, 120, 160))
    assert first[200] == 200  # the end waits


def test_whoever_listens_hears_of_it_at_its_step(tmp_path: Path):
    class Listener(duetto.Callback):
        def __init__(self) -> None:
            self.heard: list[tuple[int, int]] = []

        def on_evaluation(self, trainer: Any) -> None:
            self.heard.append((trainer.step, trainer.last_evaluation[0]))

    listener = Listener()
    train(tmp_path, environment=Line, cluster=Simulation(rates=OFTEN), callbacks=[listener], **HOW)
    assert listener.heard == [(step, step) for step in (0, 40, 80, 120, 160, 200)]


def test_one_that_was_under_way_at_a_checkpoint_is_made_again(tmp_path: Path):
    how = HOW | {"checkpoint_every": 40}
    whole = train(tmp_path, environment=Line, name="whole", cluster=Simulation(rates=STEADY), **how)
    with pytest.raises(CrashError):
        train(tmp_path, environment=Line, name="run", cluster=Simulation(rates=STEADY), callbacks=[CrashAt(82)], **how)
    run = Run(tmp_path / "run", environment=Line)
    state = checkpoints(run).load_latest().state
    assert state["trainer"]["step"] == 80
    assert state["evaluations"]["under_way"]
    run.resume(cluster=Simulation(rates=STEADY))
    assert_same(whole, run)


def test_a_checkpoint_of_a_later_step_waits_for_it(tmp_path: Path):
    how = HOW | {"checkpoint_every": 42}
    with pytest.raises(CrashError):
        train(tmp_path, environment=Line, name="run", cluster=Simulation(rates=STEADY), callbacks=[CrashAt(84)], **how)
    run = Run(tmp_path / "run")
    assert not checkpoints(run).load_latest().state["evaluations"]["under_way"]
    assert [row["step"] for row in run.evaluations()] == [0, 40, 80]


def test_a_run_that_is_stopped_has_it(tmp_path: Path):
    run = train(tmp_path, environment=Line, cluster=Simulation(rates=STEADY), callbacks=[StopAt(80)], **HOW)
    assert [row["step"] for row in run.evaluations()] == [0, 40, 80]


def test_the_best_are_the_parameters_of_its_step(tmp_path: Path):
    run = train(tmp_path, small("ppo"), "CartPole-v1", name="run", cluster=Simulation(rates=STEADY), **HOW)
    highest = max(row["mean_return"] for row in run.evaluations())
    steps = [row["step"] for row in run.evaluations() if row["mean_return"] == highest]
    assert duetto.load(run.path, "best").step in steps


def test_an_environment_that_fails_in_it_ends_the_run_with_a_sentence(tmp_path: Path):
    class Failing(Line):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            if seed is not None and seed >= 100:
                raise ValueError("no such place")
            return super().reset(seed=seed, options=options)

    with pytest.raises(EnvironmentFailedError, match=r"Failing \(evaluation\), .*no such place"):
        train(tmp_path, environment=Failing, cluster=Simulation(rates=STEADY), **HOW)


def test_no_evaluations_no_actor_for_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(RemoteEvaluator, "__init__", None)
    train(tmp_path, environment=Line, cluster=Simulation(rates=STEADY), **HOW | {"evaluate_every": 0})


# ---------------------------------------------------------------------------------------------------- mutants
def newest(patch: pytest.MonkeyPatch) -> None:
    """The row is of the step at which it is found."""
    record = training_evaluator.Evaluations._record

    def later(self: Any, result: Any, snapshot: training_evaluator.Snapshot) -> Any:
        return record(self, result, snapshot._replace(step=snapshot.step + 2))

    patch.setattr(training_evaluator.Evaluations, "_record", later)


def goes_on(patch: pytest.MonkeyPatch) -> None:
    """One that took the place of another starts with what that had got to, without parameters."""
    patch.setattr(
        EvaluatorActor,
        "go_on",
        lambda self, go_on=EvaluatorActor.go_on: go_on(self) or Evaluation(np.zeros(3), np.ones(3)),
    )


@pytest.mark.parametrize("mutant", [newest, goes_on])
def test_a_mutant_is_seen(tmp_path: Path, mutant: Any, monkeypatch: pytest.MonkeyPatch):
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        test_they_are_the_same_whatever_dies(tmp_path, 0)
