"""Masks of allowed actions reach whoever acts on a cluster: the environment raises at a forbidden action."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from masked_environments import Turnstile
from small_runs import checkpoints, small, train
from test_cluster_runs import STEADY, Simulation

from duetto.cluster import config as options


@pytest.fixture(autouse=True)
def with_ray(monkeypatch: pytest.MonkeyPatch):
    """Whether or not it is installed."""
    monkeypatch.setattr(options, "find_spec", lambda name: name)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_actors_take_allowed_actions(mode: Any, tmp_path: Path) -> None:
    how: dict[str, Any] = {"num_envs": 4, "steps": 160, "evaluate_every": 0}
    agent = small("dqn", exploration_end=0.5)
    cluster = Simulation(actors=2, mode=mode, rates=STEADY)
    run = train(tmp_path, agent, Turnstile, cluster=cluster, **how)
    state = checkpoints(run).load_latest().state
    assert state["spaces"]["action_mask"] is True
    run.resume(200, cluster=Simulation(actors=2, mode=mode, rates=STEADY))  # whose actors stand where they did
    assert checkpoints(run).steps()[-1] == 200
