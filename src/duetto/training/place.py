"""Where the environments live that a run learns from, who acts in them, and who evaluates."""

from __future__ import annotations

from typing import Any, Protocol

from duetto import environments
from duetto.errors import UsageError
from duetto.learners import Acting
from duetto.learners.parameters import Parameters
from duetto.learners.ranks import Machines, ThisMachine
from duetto.memory import Shards
from duetto.storage.config import Config
from duetto.training.collector import Collector, Source
from duetto.training.evaluation import Evaluation
from duetto.training.normalizer import Normalizer


class Evaluator(Protocol):
    """Evaluates beside the run, which goes on meanwhile."""

    def begin(self, parameters: Parameters, scaling: dict[str, Any]) -> None:
        """With these parameters, and the normalizer's state. What was begun before is done."""
        ...

    def look(self, wait: bool) -> Evaluation | None:
        """What came of it, if that is known already or is waited for.

        Raises EnvironmentFailedError if its environment has failed.
        """
        ...

    def close(self) -> None:
        """Release its environments."""
        ...


class Place(Protocol):
    """What a session asks of it."""

    def make_stepper(
        self, config: Config, environment: Any, notices: list[str], **options: Any
    ) -> environments.Stepper:
        """The environments. `options` are those of `environments.make`; what becomes of them is said in `notices`."""
        ...

    def make_source(
        self, config: Config, stepper: environments.Stepper, learner: Acting, normalizer: Normalizer
    ) -> Source:
        """What acts in them."""
        ...

    def machines(self, config: Config, stepper: environments.Stepper) -> Machines | None:
        """Where the learners of a run with several live, if in processes; None: JAX's are devices of this one."""
        ...

    def make_evaluator(self, config: Config, environment: Any, stepper: environments.Stepper) -> Evaluator | None:
        """Who evaluates beside the run on `stepper`; None: nobody, it does that itself."""
        ...

    def make_shards(self, config: Config, stepper: environments.Stepper) -> Shards | None:
        """What the replay memory is spread over; None: it is in this process, as a whole."""
        ...

    def decided(self, stepper: environments.Stepper) -> dict[str, Any]:
        """What of the place decides numbers: `cluster` in the config."""
        ...


class Here:
    """This process."""

    def make_stepper(
        self, config: Config, environment: Any, notices: list[str], **options: Any
    ) -> environments.Stepper:
        """See Place."""
        if pace := config.cluster.get("pace"):
            raise UsageError(
                f"This run goes on a cluster at the pace {pace}, which decides its numbers. Give --cluster "
                "(in Python cluster=duetto.Cluster())."
            )
        return environments.make(environment, **options)

    def make_source(
        self, config: Config, stepper: environments.Stepper, learner: Acting, normalizer: Normalizer
    ) -> Source:
        """See Place."""
        return Collector(config.algorithm, stepper, learner, normalizer, config.run.seed)

    def machines(self, config: Config, stepper: environments.Stepper) -> Machines | None:
        """See Place."""
        if config.run.backend == "jax":
            return None
        if config.origin:
            config.origin.let_travel(type(config.algorithm))
        return ThisMachine()

    def make_evaluator(self, config: Config, environment: Any, stepper: environments.Stepper) -> None:
        """See Place."""

    def make_shards(self, config: Config, stepper: environments.Stepper) -> None:
        """See Place."""

    def decided(self, stepper: environments.Stepper) -> dict[str, Any]:
        """See Place."""
        return {}
