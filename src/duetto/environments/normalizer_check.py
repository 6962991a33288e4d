"""Find wrappers with running statistics, such as Gymnasium's NormalizeObservation.

Each environment has its own statistics. Evaluations, videos and users of the trained agent would normalize otherwise
than training did.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from gymnasium.vector import VectorEnv
from gymnasium.wrappers.utils import RunningMeanStd

from duetto.environments.vec_env import VecEnv
from duetto.errors import UsageError


def running(environment: Any, stepper: VecEnv) -> str:
    """Return the class name of the first wrapper whose statistics still change; "" without one.

    `environment` is the argument of `make`. Environments that cannot be reached one by one are not checked.
    """
    if isinstance(environment, VectorEnv):
        return running_in(environment)
    with suppress(UsageError):
        return stepper.call(running_in)
    return ""


def running_in(environment: Any) -> str:
    """Return the class name of the first such wrapper of an environment or vector environment; "" without one."""
    while environment is not None:
        own = vars(environment)
        changes = getattr(environment, "update_running_mean", True)
        if changes and any(isinstance(value, RunningMeanStd) for value in own.values()):
            return type(environment).__name__
        several = own.get("envs")  # of a SyncVectorEnv
        environment = several[0] if several else own.get("env")
    return ""
