"""Learners of SAC or CrossQ, whole and of one loss alone, for the tests of facts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from learning_cases import batch, build, first_moments, small

from duetto.algorithms import SAC


def at_start(kind: type[SAC]) -> Callable[..., Any]:
    """Every kind is built once for each backend, and put back to its start."""

    @dataclass(frozen=True)
    class Alone(kind):
        """One of the losses by itself."""

        only: str = "critic"

        def update(self, learner: Any, batch: Any, noise: Any, phase: int) -> None:
            loss, numbers = (self.actor_loss, noise.now) if self.only == "actor" else (self.critic_loss, noise.next)
            learner.minimize(self.only, loss, batch, numbers)

    made: dict[Any, Any] = {}

    def get(backend: str, only: str | None = None) -> Any:
        if (backend, only) not in made:
            learner = build(backend, small(kind) if only is None else small(Alone, only=only))
            made[backend, only] = learner, learner.state_dict()
        learner, state = made[backend, only]
        learner.load_state_dict(state)
        return learner

    return get


def gradient(learner: Any, name: str, shifted: tuple[str, str, float] | None = None, given: Any = None) -> Any:
    """A network's first moments after one update, with the arrays of a network whose names end so shifted."""
    if shifted is not None:
        network, end, by = shifted
        parameters = learner.parameters()
        for key, values in parameters[network].items():
            if key.endswith(end):
                values += np.float32(by)
        learner.load_parameters(parameters)
    learner.update(batch() if given is None else given)
    return first_moments(learner, name)


def differ(one: Any, other: Any) -> bool:
    return any(not np.allclose(values, other[key], rtol=1e-3, atol=1e-9) for key, values in one.items())
