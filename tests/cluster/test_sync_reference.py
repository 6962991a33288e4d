"""A sync run stores the same blocks, holds the same buffer and has the same losses as a loop in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from simulated import STEADY, Simulated
from small_runs import BRIEF, differences, small, train
from sync_reference import Record, Recorder, reference
from test_cluster_runs import RECURRENT

from duetto.cluster import config as options

CASES: dict[str, tuple[Any, str, int]] = {
    "td3": (small("td3", n_step=3, prioritized=True), "Pendulum-v1", 5),
    "flashsac": (
        small("flashsac", critic_hidden=(), random_steps=60, learning_starts=60),
        "Pendulum-v1",
        5,
    ),
    "ppo": (small("ppo", normalize_observations=True, normalize_rewards=True), "CartPole-v1", 8),
    "r2d2": (small("r2d2", **RECURRENT, n_step=3, head_hidden=(16,), train_every=2), "CartPole-v1", 5),
}
HOW: dict[str, Any] = {"num_envs": 5, "steps": 240, "evaluate_every": 0, "checkpoint_every": 0}


def expected(case: str) -> Record:
    """Return the record of the reference loop with two actors."""
    algorithm, environment, block = CASES[case]
    kwargs = BRIEF if environment == "Pendulum-v1" else {}
    return reference(algorithm, environment, HOW["num_envs"], 2, block, HOW["steps"], **kwargs)


def recorded_run(case: str, folder: Path, cluster: type[options.Cluster]) -> Record:
    """Return the record of a run on a cluster with two actors."""
    (algorithm, environment, block), recorder = CASES[case], Recorder()
    where = cluster(actors=2, mode="sync", block=block)
    train(folder, algorithm, environment, cluster=where, callbacks=[recorder], **HOW)
    return recorder.record


def assert_same_record(one: Record, other: Record) -> None:
    for name, mine, theirs in zip(Record._fields, one, other, strict=True):
        mine, theirs = ([step._asdict() for step in part] if name == "steps" else part for part in (mine, theirs))
        assert len(mine) == len(theirs) > 0, name
        assert not (found := differences(mine, theirs)), f"{name}: {found[:5]}"


@pytest.mark.parametrize("case", CASES)
def test_a_simulated_sync_run_equals_the_reference(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(options.Cluster, "connect", lambda self, actors: Simulated(0, STEADY))
    assert_same_record(expected(case), recorded_run(case, tmp_path, options.Cluster))
