"""What is said of a cluster on the command line."""

from __future__ import annotations

import pytest

from duetto.cluster import Cluster
from duetto.cluster import config as options
from duetto.errors import UsageError
from duetto.tools.cli.options import CLUSTER, EnvironmentId, cluster
from duetto.tools.cli.parser import OptionGroup, Parser


@pytest.mark.parametrize(
    ("words", "address"),
    [
        ("Pendulum-v1", None),
        ("Pendulum-v1 --cluster", "here"),
        ("--cluster --actors 4 Pendulum-v1", "here"),
        ("--cluster=auto --actors 2 Pendulum-v1", "auto"),
        ("Pendulum-v1 --cluster head:6379", "head:6379"),
        ("Pendulum-v1 --cluster ray://10.0.0.1:10001 --actors 2", "ray://10.0.0.1:10001"),
    ],
)
def test_an_address_may_be_left_out(words: str, address: str | None):
    group = OptionGroup("cluster", CLUSTER, dict.fromkeys(CLUSTER))
    parser = Parser("duetto train td3", [OptionGroup("", {"environment": EnvironmentId}), group])
    given = parser.parse(words.split())
    assert (given["environment"], given.get("cluster")) == ("Pendulum-v1", address)


def test_options_become_a_cluster(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(options, "find_spec", lambda name: name)
    assert cluster({"seeds": "3", "actors": None}) is None
    assert cluster({"cluster": "here"}) == Cluster(None, 0, None)
    given = {"cluster": "auto", "actors": 8, "mode": "async", "block": 4}
    assert cluster(given) == Cluster("auto", 8, "async", 4)
    with pytest.raises(UsageError, match="--actors is of a cluster"):
        cluster({"actors": 3})
    with pytest.raises(UsageError, match="--mode is of a cluster"):
        cluster({"mode": "sync"})
    with pytest.raises(UsageError, match="--cluster is 'Pendulum-v1'; it must be HOST:PORT"):
        cluster({"cluster": "Pendulum-v1"})


def test_a_run_goes_on_with_the_actors_that_it_was_given_though_some_had_no_environment(
    monkeypatch: pytest.MonkeyPatch,
):
    """The number that is kept is that of those at work; the same command was refused."""
    monkeypatch.setattr(options, "find_spec", lambda name: name)
    kept = {"mode": "sync", "actors": 4, "block": 5}
    assert Cluster(actors=6).resuming(kept, num_envs=4) == Cluster(None, 4, "sync", 5)
    for actors, num_envs in ((3, 4), (6, 5)):
        with pytest.raises(
            UsageError, match=f"continues with actors 4, which decides its numbers, not {min(actors, 5)}"
        ):
            Cluster(actors=actors).resuming(kept, num_envs)
