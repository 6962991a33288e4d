"""Hindsight Experience Replay, an option of off-policy actor-critics: achieved goals replace desired goals.

    environment  observes {observation, achieved_goal, desired_goal}, and computes r(achieved, desired) for any goals
    networks     see observation and desired_goal
    each batch   (s, a, r, γ, s', g) from the buffer; then for each item with probability `hindsight_share`
                 g ← the achieved goal of s'ⱼ,   j a step of the same episode:   future   uniform from this step on
                                                                                final    the last one
                                                                                episode  uniform
                 r ← r(achieved goal of s', g);   γ is recomputed if the environment computes terminations for goals

The facts that define HER:

- Goals are replaced in batches, never in the buffer.
- New goals come from the same episode; with "future", from this step or later.
- The environment computes the rewards for new goals.
"""

from __future__ import annotations

from duetto.errors import UsageError
from duetto.networks.spaces import Box, Dict, Space

ACHIEVED, DESIRED = "achieved_goal", "desired_goal"


def check_goals(observation: Space, environment: str) -> None:
    """Raise UsageError if observations have no goals, or nothing except goals."""
    parts = dict(observation.parts) if isinstance(observation, Dict) else {}
    achieved, desired = parts.get(ACHIEVED), parts.get(DESIRED)
    if not (isinstance(achieved, Box) and isinstance(desired, Box) and achieved.shape == desired.shape):
        raise UsageError(
            f"hindsight needs {ACHIEVED} and {DESIRED} in observations, two Boxes of one shape; {environment} "
            f"observes {observation}. Turn hindsight off, or use an environment with goals."
        )
    if len(parts) == 2:
        raise UsageError(f'{environment} observes only goals. Add a part "observation".')
