"""What is said of a cluster on the command line."""

from __future__ import annotations

import pytest

from duetto.cli.clusters import cluster, with_address
from duetto.cluster import Cluster, options
from duetto.errors import UsageError


@pytest.mark.parametrize(
    ("given", "completed"),
    [
        ("", ""),
        ("Pendulum-v1", "Pendulum-v1"),
        ("Pendulum-v1 --cluster", "Pendulum-v1 --cluster here"),
        ("--cluster Pendulum-v1", "--cluster here Pendulum-v1"),
        ("--cluster --actors 4", "--cluster here --actors 4"),
        ("--cluster module:Env-v0", "--cluster here module:Env-v0"),
        ("--cluster auto Pendulum-v1", "--cluster auto Pendulum-v1"),
        ("--cluster head:6379", "--cluster head:6379"),
        ("--cluster ray://10.0.0.1:10001", "--cluster ray://10.0.0.1:10001"),
    ],
)
def test_an_address_may_be_left_out(given: str, completed: str):
    assert with_address(given.split()) == completed.split()


def test_options_become_a_cluster(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(options, "find_spec", lambda name: name)
    assert cluster(None, actors=None, pace=None) is None
    assert cluster("here", actors=None, pace=None) == Cluster(None, 0, None)
    assert cluster("auto", actors=8, pace="free", block=4, ahead=64) == Cluster("auto", 8, "free", 4, 64)
    with pytest.raises(UsageError, match="--actors is of a cluster"):
        cluster(None, actors=3, pace=None)
    with pytest.raises(UsageError, match="--pace is of a cluster"):
        cluster(None, actors=None, pace="exact")
