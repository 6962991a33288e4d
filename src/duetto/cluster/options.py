"""Where the environments of a run live, when not in its own process."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any, Literal

from duetto.algorithms.base import Within, check_fields
from duetto.errors import UsageError

if TYPE_CHECKING:  # the options alone import neither environments nor Ray
    from duetto.cluster.transport import Transport
    from duetto.environments import Stepper

Pace = Literal["exact", "lockstep", "free"]


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster whose processes, called actors, step a run's environments.

    With the pace `exact` the run's numbers are those that it has in one process, bit by bit, on any number of actors
    and whichever of them die.
    """

    address: str | None = None
    """Ray's, such as "auto" or "HOST:6379"; None is a cluster on this machine, for this run alone."""
    actors: Annotated[int, Within(1)] = 2
    """Processes that the environments are spread over."""
    pace: Pace = "exact"
    """Who waits for whom: "exact" is the only one yet."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.pace != "exact":
            raise UsageError(f"The pace {self.pace!r} is not built yet. Use exact, which every algorithm can.")
        if find_spec("ray") is None:
            raise UsageError('A cluster needs Ray, which is not installed. Install: pip install "duetto[cluster]"')

    def make_stepper(self, environment: Any, notices: list[str], *, num_envs: int, **options: Any) -> Stepper:
        """A Stepper whose environments live in actors; closing it ends these, and the cluster if it began here.

        `options` are those of `environments.make`. What becomes of actors is said in `notices`.
        """
        from duetto.cluster.placing import place

        actors = min(self.actors, num_envs)
        if actors < self.actors:
            notices.append(
                f"{num_envs} environment{'s' * (num_envs > 1)} on {actors} of the {self.actors} actors: the others "
                "would have none. Give more --num-envs."
            )
        return place(environment, num_envs, options, lambda: self.connect(actors), actors, notices)

    def connect(self, actors: int) -> Transport:
        """The way to the cluster, which has room for so many actors."""
        from duetto.cluster.ray import RayTransport

        return RayTransport(self.address, actors)
