"""The options `--cluster [ADDRESS] --actors N --pace PACE --block T --ahead STEPS --replay-shards K`, for the commands
that train.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from tyro.conf import arg

from duetto.cluster.options import Cluster, Pace
from duetto.errors import UsageError

HERE = "here"
_ADDRESS = re.compile(r"auto|here|(ray://)?[\w.-]+:\d+")

Address = Annotated[
    str | None,
    arg(metavar="[ADDRESS]", help="Step the environments on a Ray cluster: at this address, or one on this machine."),
]
Actors = Annotated[
    int | None, arg(help="Processes of the cluster that the environments are spread over; by default 2.")
]
AnyPace = Annotated[
    Pace | None,
    arg(help="exact: the numbers of a run without a cluster; lockstep, free: actors choose actions themselves."),
]
Blocks = Annotated[int | None, arg(help="Vector steps that an actor makes by itself; by default a rollout's, or 16.")]
Ahead = Annotated[
    int | None,
    arg(help="At the pace free: steps made before they are learned from; by default 2 blocks an actor."),
]

ReplayShards = Annotated[
    int | None, arg(help="Processes that the replay memory is spread over; by default 0: it is in the run's own.")
]


def with_address(arguments: list[str]) -> list[str]:
    """Add the address after a `--cluster` without one: tyro has no options whose value may be left out."""
    completed = []
    for argument, following in zip(arguments, [*arguments, ""][1:], strict=True):
        completed.append(argument)
        if argument == "--cluster" and not _ADDRESS.fullmatch(following):
            completed.append(HERE)
    return completed


def cluster(address: str | None, **options: Any) -> Cluster | None:
    """The cluster that is asked for, or None. `options` are its other fields, None if not given; UsageError if they are
    given without a cluster.
    """
    given = {name: value for name, value in options.items() if value is not None}
    if address is None:
        if given:
            raise UsageError(
                f"--{next(iter(given)).replace('_', '-')} is of a cluster. Give --cluster too, or leave it out."
            )
        return None
    return Cluster(None if address == HERE else address, **given)
