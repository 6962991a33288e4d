"""Where environments step and replay shards are: in this process, or on a cluster."""

from __future__ import annotations

from typing import Any

from duetto import environments
from duetto.buffers import Shards
from duetto.errors import UsageError
from duetto.learners import Policy
from duetto.storage.config import Config
from duetto.training.collector import Collector, Source
from duetto.training.normalizer import Normalizer


class Execution:
    """The processes of a trainer's environments and replay shards: here all in this process."""

    def make_stepper(self, config: Config, environment: Any, notices: list[str], **options: Any) -> environments.VecEnv:
        """Make the environments. `options` are those of `environments.make`; warnings are appended to `notices`.

        Raises UsageError if the run was trained on a cluster.
        """
        if config.cluster:
            raise UsageError(
                "This run was trained on a cluster, which decides its numbers. Give --cluster (in Python "
                "cluster=duetto.Cluster())."
            )
        return environments.make(environment, **options)

    def make_source(
        self, config: Config, stepper: environments.VecEnv, learner: Policy, normalizer: Normalizer
    ) -> Source:
        """Make the source of experience, which acts in the environments."""
        return Collector(config.algorithm, stepper, learner, normalizer, config.run.seed)

    def make_shards(self, stepper: environments.VecEnv) -> Shards | None:
        """Make the replay buffer's shards; None keeps the whole buffer in this process."""
        return None

    def decided(self) -> dict[str, Any]:
        """Return the options that decide numbers: `cluster` in the config."""
        return {}
