"""A simulated cluster in the mode sync: the order of stored blocks, and the drawn batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import adapter
import pytest
from test_golden_runs import CHOICES, REPLAY, ROLLOUTS, check, train

import duetto

RUNS: dict[str, tuple[Any, dict[str, Any]]] = {
    "steps": (duetto.DQN(**REPLAY, train_every=8, target_period=3, exploration_steps=60), {"block": 5}),
    "ladder": (duetto.DQN(**REPLAY, train_every=8, exploration="ladder", exploration_start=0.5), {"block": 5}),
    "rollouts": (duetto.PPO(**ROLLOUTS, observation_statistics="steps"), {}),
}


@pytest.mark.parametrize(("case", "shards"), [("steps", 0), ("steps", 2), ("ladder", 0), ("rollouts", 0)])
def test_sync_cluster_run_matches_trace(case: str, shards: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    algorithm, blocks = RUNS[case]
    cluster = adapter.sync_cluster(monkeypatch, actors=3, replay_shards=shards, **blocks)
    found = train(tmp_path, algorithm, CHOICES, num_envs=4, cluster=cluster, evaluate_every=0)
    whole = {
        name for name in found if not (shards and name.startswith("stored"))
    }  # with shards, actors send steps directly to them
    check(f"cluster {case}{' shards' * (shards > 0)}", {name: found[name] for name in whole}, acts=False)
