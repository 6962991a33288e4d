"""Where the environments of a run live, when not in its own process."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Annotated, Any, Literal

from duetto.algorithms.base import Within, check_fields
from duetto.cluster.crew import Crew
from duetto.cluster.spread import Spread
from duetto.cluster.transport import Transport
from duetto.environments import Stepper, recipes
from duetto.environments.faults import Fault, summary
from duetto.environments.shares import shares
from duetto.errors import UsageError
from duetto.training.session import is_instance

Pace = Literal["exact", "lockstep", "free"]


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster whose processes, called actors, step a run's environments.

    With the pace `exact` the run's numbers are those that it has in one process, bit by bit, on any number of actors
    and whichever of them die.
    """

    address: str | None = None
    """Ray's, such as "auto" or "ray://HOST:10001"; None is a cluster on this machine, for this run alone."""
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
        """A Stepper whose environments live in actors; closing it ends these, and the cluster if it began here."""
        if is_instance(environment):
            raise UsageError(
                "An environment that is made already lives in this process. For a cluster, pass its id, or a factory "
                "that makes a new one at each call."
            )
        try:
            recipe = recipes.pack(environment, options)
        except Exception as error:  # whatever a user's objects raise
            raise UsageError(
                f"The environment cannot be sent to another process ({summary(error)}). Use its id, or a factory that "
                "makes what it needs when it is called."
            ) from error
        actors = min(self.actors, num_envs)
        if actors < self.actors:
            notices.append(
                f"{num_envs} environment{'s' * (num_envs > 1)} on {actors} of the {self.actors} actors: the others "
                "would have none. Give more --num-envs."
            )
        return self._spread(self._transport(actors), recipe, num_envs, actors, options["worker_timeout"], notices)

    def _transport(self, actors: int) -> Transport:
        from duetto.cluster.ray import RayTransport

        return RayTransport(self.address, actors)

    def _spread(
        self, transport: Transport, recipe: bytes, num_envs: int, actors: int, timeout: float, notices: list[str]
    ) -> Stepper:
        crew = Crew(transport, recipe, shares(num_envs, actors), timeout, notices)
        try:
            engine = Spread(crew)
        except BaseException as error:
            crew.close()
            if isinstance(error, Fault):
                raise error.told("The environments", 0) from error
            raise
        return Stepper(engine, engine.name)
