"""SAC and CrossQ learners, with all losses or only one, and their gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from learning_cases import batch, build, first_moments, small

from duetto.algorithms import SAC


def cached_learners(kind: type[SAC]) -> Callable[..., Any]:
    """Return a function that builds each learner once and resets it to its initial state."""

    @dataclass(frozen=True)
    class SingleLoss(kind):
        """Minimizes only the critics' or only the actor's loss."""

        only: str = "critic"

        def update(self, learner: Any, batch: Any, noise: Any, phase: int) -> None:
            loss, numbers = (self.actor_loss, noise.now) if self.only == "actor" else (self.critic_loss, noise.next)
            learner.minimize(self.only, loss, batch, numbers)

    cache: dict[Any, Any] = {}

    def get(backend: str, only: str | None = None) -> Any:
        if (backend, only) not in cache:
            learner = build(backend, small(kind) if only is None else small(SingleLoss, only=only))
            cache[backend, only] = learner, learner.state_dict()
        learner, state = cache[backend, only]
        learner.load_state_dict(state)
        return learner

    return get


def gradient(learner: Any, name: str, shifted: tuple[str, str, float] | None = None, given: Any = None) -> Any:
    """Return the first moments of network `name` after one update.

    `shifted` is (network, suffix, by). Before the update, `by` is added to that network's arrays whose names end with
    the suffix.
    """
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
