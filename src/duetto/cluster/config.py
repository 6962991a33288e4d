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

KEPT = ("mode", "actors", "block")  # what may decide numbers


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster whose processes, called actors, act in a run's environments.

    Actors act with parameters that are a block old, so the numbers are not those of a run in one process. In the mode
    `sync` they depend on the number of actors and the block length, and on no timing and no process that dies. A
    resumed run keeps its mode, its block length and, in `sync`, its number of actors. Actors of networks for images,
    and of custom networks, load the run's framework; all others act in NumPy.
    """

    address: str | None = None
    """Ray's, such as "auto" or "HOST:6379"; None is a cluster on this machine, for this run alone."""
    actors: CountOrZero = 0
    """Processes that the environments are spread over; 0 is 2."""
    mode: Mode | None = None
    """"sync": actors wait for the learner and for each other, and the run is repeatable; "async": they do not. None is
    "sync"."""
    block: CountOrZero = 0
    """Vector steps that an actor makes per request; 0 is a rollout, or 16."""
    replay_shards: CountOrZero = 0
    """Processes that the replay memory is spread over, by environments; 0: it is in the run's own. It decides no number
    beyond rounding."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.mode not in (None, *get_args(Mode)):
            raise UsageError(f"mode is {self.mode!r}; it must be one of {', '.join(get_args(Mode))}.")
        if find_spec("ray") is None:
            raise UsageError(f"A cluster needs Ray, which is not installed. Install: {install('cluster')}")

    def resuming(self, kept: dict[str, Any], num_envs: int) -> Cluster:
        """Return the options of a run of `num_envs` environments that continues, whose config `kept` some.

        Raises UsageError where others were given.
        """
        if not kept:
            raise UsageError(
                "The run started without a cluster, where its numbers are others. Resume it without one, or start "
                "another."
            )
        for name in KEPT:
            given = getattr(self, name)
            if name == "actors":  # the run left out actors without an environment
                given = min(given, num_envs)
            if name in kept and given and given != kept[name]:
                raise UsageError(
                    f"The run continues with {name} {kept[name]}, which decides its numbers, not {given}. Leave it "
                    "out, or start a new run."
                )
        return replace(self, **{name: kept[name] for name in KEPT if name in kept})

    def execution(self) -> Execution:
        """Return what makes the parts of a run on this cluster."""
        from duetto.cluster.launch import ClusterExecution

        return ClusterExecution(self)

    def connect(self, processes: int) -> Transport:
        """Connect to the cluster. UsageError if it has too few CPUs for the processes."""
        from duetto.cluster.ray import RayTransport

        return RayTransport(self.address, processes)
