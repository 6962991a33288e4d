"""Check whether an environment with goals can be learned from with hindsight."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from duetto.algorithms.hindsight import ACHIEVED, DESIRED
from duetto.environments.checking.findings import Finding, costs, fine
from duetto.environments.goals import Goals
from duetto.environments.stepping import Stepper
from duetto.errors import DuettoError

STEPS = 60


def goals(stepper: Stepper, alive: Callable[[], None]) -> Iterator[Finding]:
    """Compare the rewards of compute_reward with those that the steps gave; no finding where there are no goals."""
    stepper.reset(11)
    if not (isinstance(stepper.obs, dict) and {ACHIEVED, DESIRED} <= stepper.obs.keys()):
        return
    draw, seen = np.random.default_rng(11), []
    for _ in range(STEPS):
        alive()
        seen.append(stepper.step(stepper.sample_actions(draw))[0])
    achieved, desired = (np.concatenate([one.next_obs[part] for one in seen]) for part in (ACHIEVED, DESIRED))
    given = np.concatenate([one.reward for one in seen])
    try:
        asked = Goals(stepper)
        asked.terminated(achieved, desired)
        apart = np.abs(asked.reward(achieved, desired) - given) > 1e-4 * np.maximum(1, np.abs(given))
    except DuettoError as error:
        yield costs("goals", f"It has goals, but no hindsight: {error}")
        return
    if apart.any():
        yield costs(
            "goals",
            f"It has goals, but no hindsight (--hindsight): compute_reward gives something else than the steps did, in "
            f"{apart.sum()} of {len(apart)}. Correct it, or take out what changes rewards afterwards.",
        )
    else:
        yield fine("goals", "It has goals, and says what others would have brought: --hindsight can be used.")
