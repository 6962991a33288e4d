"""Where the environments live that a run learns from, and who acts in them."""

from __future__ import annotations

from typing import Any, Protocol

from duetto import environments
from duetto.errors import UsageError
from duetto.learners import Learner
from duetto.storage.config import Config
from duetto.training.collector import Collector, Source
from duetto.training.normalizer import Normalizer


class Place(Protocol):
    """What a session asks of it."""

    def make_stepper(
        self, config: Config, environment: Any, notices: list[str], **options: Any
    ) -> environments.Stepper:
        """The environments. `options` are those of `environments.make`; what becomes of them is said in `notices`."""
        ...

    def make_source(
        self, config: Config, stepper: environments.Stepper, learner: Learner, normalizer: Normalizer
    ) -> Source:
        """What acts in them."""
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
        self, config: Config, stepper: environments.Stepper, learner: Learner, normalizer: Normalizer
    ) -> Source:
        """See Place."""
        return Collector(config.algorithm, stepper, learner, normalizer, config.run.seed)

    def decided(self, stepper: environments.Stepper) -> dict[str, Any]:
        """See Place."""
        return {}
