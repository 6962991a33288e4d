"""Where environments step and replay shards are: in this process, or on a cluster."""

from __future__ import annotations

from typing import Any, Protocol

from duetto import environments
from duetto.buffers import Shards
from duetto.errors import UsageError
from duetto.learners import Policy
from duetto.storage.config import Config
from duetto.training.collector import Collector, Source
from duetto.training.normalizer import Normalizer


class Execution(Protocol):
    """The processes of a trainer's environments and replay shards."""

    def make_stepper(self, config: Config, environment: Any, notices: list[str], **options: Any) -> environments.VecEnv:
        """Make the environments. `options` are those of `environments.make`; warnings are appended to `notices`."""
        ...

    def make_source(
        self, config: Config, stepper: environments.VecEnv, learner: Policy, normalizer: Normalizer
    ) -> Source:
        """Make the source of experience, which acts in the environments."""
        ...

    def make_shards(self, config: Config, stepper: environments.VecEnv) -> Shards | None:
        """Make the replay buffer's shards; None keeps the whole buffer in this process."""
        ...

    def decided(self, stepper: environments.VecEnv) -> dict[str, Any]:
        """Return the options that affect results: `cluster` in the config."""
        ...


class LocalExecution:
    """Runs environments and replay buffer in this process."""

    def make_stepper(self, config: Config, environment: Any, notices: list[str], **options: Any) -> environments.VecEnv:
        """Make the environments in this process. Raises UsageError if the run was trained on a cluster."""
        if config.cluster:
            raise UsageError(
                "This run was trained on a cluster, which decides its numbers. Give --cluster (in Python "
                "cluster=duetto.Cluster())."
            )
        return environments.make(environment, **options)

    def make_source(
        self, config: Config, stepper: environments.VecEnv, learner: Policy, normalizer: Normalizer
    ) -> Source:
        """Make a collector, which acts in this process."""
        return Collector(config.algorithm, stepper, learner, normalizer, config.run.seed)

    def make_shards(self, config: Config, stepper: environments.VecEnv) -> None:
        """Return None: the whole memory is in this process."""

    def decided(self, stepper: environments.VecEnv) -> dict[str, Any]:
        """Return no options: none of this place decides numbers."""
        return {}
