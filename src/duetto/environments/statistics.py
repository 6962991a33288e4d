"""Wrappers with running statistics: Gymnasium's NormalizeObservation, NormalizeReward and their like.

Each environment that is made has statistics of its own. So those of evaluations and videos, and of whoever takes the
trained agent elsewhere, are not the ones that it has learned with: silently another problem.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gymnasium.vector import VectorEnv
from gymnasium.wrappers.utils import RunningMeanStd

from duetto.environments.stepping import Stepper


def running(environment: Any, stepper: Stepper) -> str:
    """Return the class name of the first wrapper whose statistics still change; "" where there is none.

    `environment` is what the stepper was made of. Environments in other processes cannot be looked at.
    """
    inner = [environment] if isinstance(environment, VectorEnv) else []
    for outermost in [*inner, *stepper.environments[:1]]:
        for wrapper in _chain(outermost):
            own = vars(wrapper).values()
            changes = getattr(wrapper, "update_running_mean", True)
            if changes and any(isinstance(value, RunningMeanStd) for value in own):
                return type(wrapper).__name__
    return ""


def _chain(environment: Any) -> Iterator[Any]:
    while environment is not None:
        yield environment
        several = vars(environment).get("envs")  # of a SyncVectorEnv
        environment = several[0] if several else vars(environment).get("env")
