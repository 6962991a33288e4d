"""What actors knew of their steps comes with their blocks, and so their items' first priorities."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from judged_runs import ACTOR, SEQUENCES, algorithm, check
from raw_episodes import Recording
from small_runs import CrashAt, CrashError, assert_same, small, train
from test_cluster_runs import OFTEN, STEADY, Simulation

from duetto.cluster import options
from duetto.runs.run import Run
from duetto.training.session import Session


@pytest.fixture(autouse=True)
def with_ray(monkeypatch: pytest.MonkeyPatch):
    """Whether or not it is installed."""
    monkeypatch.setattr(options, "find_spec", lambda name: name)


@pytest.mark.parametrize("pace", ["lockstep", "free"])
@pytest.mark.parametrize("name", ["dqn", "r2d2"])
def test_first_priorities_are_the_learners(tmp_path: Path, name: str, pace: Any):
    Recording.made.clear()
    checked = []

    def at_the_end(session: Session) -> None:
        if session.step >= 300:
            check(session, distant=True)
            checked.append(session.step)

    agent = algorithm(name, random_steps=0, n_step=2)
    how: dict[str, Any] = {"num_envs": 3, "steps": 300, "evaluate_every": 0, "checkpoint_every": 0}
    cluster = Simulation(actors=2, pace=pace, block=4, rates=STEADY)
    train(tmp_path, agent, partial(Recording, choices=True), cluster=cluster, callbacks=[at_the_end], **how)
    assert len(checked) == 1


def test_they_are_part_of_a_cut(tmp_path: Path):
    """Killed in the middle of a block, and actors too: the same numbers."""
    agent = small("r2d2", **SEQUENCES | ACTOR | {"head_hidden": (16,), "train_every": 4, "batch_size": 8})
    how: dict[str, Any] = {"num_envs": 4, "steps": 120, "evaluate_every": 0, "checkpoint_every": 20}
    cluster: dict[str, Any] = {"pace": "lockstep", "actors": 2, "block": 5}
    quiet = train(tmp_path, agent, "CartPole-v1", name="quiet", cluster=Simulation(rates=STEADY, **cluster), **how)
    loud = Simulation(rates=OFTEN, **cluster)
    with pytest.raises(CrashError):
        train(tmp_path, agent, "CartPole-v1", name="loud", cluster=loud, callbacks=[CrashAt(70)], **how)
    Run(tmp_path / "loud").resume(cluster=Simulation(rates=STEADY, actors=2, pace="lockstep"))
    assert_same(quiet, Run(tmp_path / "loud"))


def test_at_the_pace_exact_they_are_those_of_one_process(tmp_path: Path):
    agent = small("dqn", **ACTOR, n_step=3)
    how: dict[str, Any] = {"num_envs": 4, "steps": 100, "evaluate_every": 0}
    local = train(tmp_path, agent, "CartPole-v1", name="local", **how)
    spread = train(tmp_path, agent, "CartPole-v1", name="spread", cluster=Simulation(actors=2, pace="exact"), **how)
    assert_same(local, spread)
