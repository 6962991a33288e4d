"""Cluster options: from the command line, and in a resumed run."""

from __future__ import annotations

import pytest

from duetto.cluster import Cluster
from duetto.errors import UsageError
from duetto.tools.cli.options import cluster


def test_cli_options_build_a_cluster_config():
    assert cluster({"seeds": "3", "actors": None}) is None
    assert cluster({"cluster": "here"}) == Cluster(None, 0, None)
    given = {"cluster": "auto", "actors": 8, "mode": "async", "block": 4}
    assert cluster(given) == Cluster("auto", 8, "async", 4)
    with pytest.raises(UsageError, match="--actors needs --cluster"):
        cluster({"actors": 3})
    with pytest.raises(UsageError, match="--mode needs --cluster"):
        cluster({"mode": "sync"})
    with pytest.raises(UsageError, match="--cluster is 'Pendulum-v1'; it must be HOST:PORT"):
        cluster({"cluster": "Pendulum-v1"})


def test_resume_compares_actors_after_capping_at_num_envs():
    """The config stores the number of actors that have environments, at most num_envs."""
    kept = {"mode": "sync", "actors": 4, "block": 5}
    assert Cluster(actors=6).resuming(kept, num_envs=4) == Cluster(None, 4, "sync", 5)
    for actors, num_envs in ((3, 4), (6, 5)):
        with pytest.raises(
            UsageError, match=f"continues with actors 4, which affects its numbers, not {min(actors, 5)}"
        ):
            Cluster(actors=actors).resuming(kept, num_envs)
