"""EnvPool's environments, which step in C++ threads, by ids such as envpool:HalfCheetah-v4."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from gymnasium.vector import AutoresetMode, VectorEnv
from typing_extensions import override

from duetto.environments import env_registry
from duetto.environments.engines import GymVectorEngine
from duetto.environments.env_registry import Family
from duetto.environments.obs_tree import Tree

PREFIX = "envpool:"
FAMILY = Family("EnvPool", ("envpool:HalfCheetah-v4", "envpool:MuJoCoPlayground/Go1Getup-v1"), "envpool", "envpool")


class EnvPoolEngine(GymVectorEngine):
    """N environments of EnvPool.

    `reset` with a seed makes new environments, since EnvPool takes a seed only when it makes them. Environment i gets
    seed + i.

    Raises:
        UsageError: EnvPool is not installed, or cannot make the environment.
    """

    def __init__(self, environment: str, num_envs: int, options: Mapping[str, Any]) -> None:
        self._id, self._num_envs, self._options = environment, num_envs, options
        super().__init__(self._make(0), environment)

    @override
    def reset(self, seed: int) -> Tree:
        self.vector.close()
        self.vector: VectorEnv = self._make(seed)
        return self._first()

    def _make(self, seed: int) -> VectorEnv:
        envpool: Any = env_registry.import_family(FAMILY, "envpool", self._id)
        env_registry.check_listed(self._id, [PREFIX + name for name in envpool.list_all_envs()])
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", ".*precision lowered by casting")  # bounds are float64
                made = envpool.make(
                    self._id.removeprefix(PREFIX),
                    env_type="gymnasium",
                    num_envs=self._num_envs,
                    seed=seed % 2**31,
                    **self._options,
                )
                _ = made.single_observation_space, made.single_action_space  # cached: only this first access warns
        except Exception as error:  # some need system libraries: Procgen needs Qt
            raise env_registry.explain(self._id, dict(self._options), error) from error
        made.metadata = dict(made.metadata or {}) | {"autoreset_mode": AutoresetMode.NEXT_STEP}
        return made
