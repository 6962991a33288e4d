"""The options of a run whose environments step on a Ray cluster."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, get_args

from duetto.algorithms.options import CountOrZero, check_fields
from duetto.errors import UsageError
from duetto.install_hint import install

if TYPE_CHECKING:  # the options alone import neither environments nor Ray
    from duetto.cluster.transport import Transport
    from duetto.training.components import Execution

Mode = Literal["sync", "async"]

KEPT = ("mode", "actors", "block")  # the options that may affect numbers


def check_cluster(cluster: Any) -> None:
    """Raise UsageError unless `cluster` is a Cluster or None."""
    if not isinstance(cluster, Cluster | None):
        raise UsageError(f"cluster is {cluster!r}; give duetto.Cluster(address={cluster!r}).")


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster whose processes, called actors, act in a run's environments.

    Actors act with parameters that are a block old, so the numbers differ from those of a run in one process. In the
    mode `sync`, the numbers depend on the number of actors and the block length, but not on timing or on processes that
    die. A resumed run keeps its mode, its block length and, in `sync`, its number of actors. Actors load the run's
    framework for networks with images and for custom networks; they compute all other networks in NumPy.
    """

    address: str | None = None
    """Address of the Ray cluster, "auto" or "HOST:6379"; None starts one on this machine for this run."""
    actors: CountOrZero = 0
    """Number of actor processes, which share the environments; 0 means 2."""
    mode: Mode | None = None
    """"sync": actors wait for the learner and for each other, so the run is repeatable; "async": they do not wait. None
    means "sync"."""
    block: CountOrZero = 0
    """Vector steps that an actor makes for each request; 0 means 16 (on-policy: a rollout)."""
    replay_shards: CountOrZero = 0
    """Number of processes that share the replay buffer, split by environments; 0 keeps it in the run's process. It
    affects numbers only by rounding."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.mode not in (None, *get_args(Mode)):
            raise UsageError(f"mode is {self.mode!r}; it must be one of {', '.join(get_args(Mode))}.")
        if find_spec("ray") is None:
            raise UsageError(f"A cluster needs Ray, which is not installed. Install: {install('cluster')}")

    def resuming(self, kept: dict[str, Any], num_envs: int) -> Cluster:
        """Return the options for resuming a run of `num_envs` environments. `kept` is `cluster` in the run's config.

        Raises UsageError if an option differs from `kept`, or `kept` is empty.
        """
        if not kept:
            raise UsageError(
                "The run started without a cluster, which would change its numbers. Resume it without one, or start a "
                "new run."
            )
        for name in KEPT:
            given = getattr(self, name)
            if name == "actors":  # more actors than environments are never used
                given = min(given, num_envs)
            if name in kept and given and given != kept[name]:
                raise UsageError(
                    f"The run continues with {name} {kept[name]}, which affects its numbers, not {given}. Leave it "
                    "out, or start a new run."
                )
        return replace(self, **{name: kept[name] for name in KEPT if name in kept})

    def execution(self) -> Execution:
        """Return the `Execution` that makes the parts of a run on this cluster."""
        from duetto.cluster.launch import ClusterExecution

        return ClusterExecution(self)

    def connect(self, processes: int) -> Transport:
        """Connect to the cluster. Raises UsageError if it has too few CPUs for the processes."""
        from duetto.cluster.ray import RayTransport

        return RayTransport(self.address, processes)
