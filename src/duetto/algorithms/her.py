"""Hindsight Experience Replay, an option of off-policy actor-critics: achieved goals replace desired ones.

    environment  observes {observation, achieved_goal, desired_goal}, and computes r(achieved, desired) of any goals
    networks     see observation and desired_goal
    each batch   (s, a, r, γ, s', g) from the buffer; then for each item with probability `hindsight_share`
                 g ← the achieved goal of s'ⱼ,   j a step of the same episode:   future   uniform from this step on
                                                                                final    the last one
                                                                                episode  uniform
                 r ← r(achieved goal of s', g),   and termination, if the environment computes it for goals

The facts that make it HER: goals are replaced in batches, never in the buffer; they come from the same episode, with
"future" from this step or later; the environment computes the rewards of new goals.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar, Literal

from duetto.algorithms.base import Fraction, HindsightSpec, ReplaySpec, SequenceSpec
from duetto.algorithms.off_policy import OffPolicy
from duetto.algorithms.options import OptionTable, in_group
from duetto.errors import UsageError
from duetto.networks.spaces import Box, Dict, Space

ACHIEVED, DESIRED = "achieved_goal", "desired_goal"


@dataclass(frozen=True)
class HindsightReplay(OffPolicy):
    """Options of algorithms with Hindsight Experience Replay."""

    hindsight: Literal["none", "future", "final", "episode"] = "none"
    """Replace desired goals by achieved ones: from later in the episode, its last one, or any of it."""
    hindsight_share: Fraction = 0.8
    """Fraction of a batch whose goals are replaced; 0.8 is the paper's k = 4."""

    option_table: ClassVar[OptionTable] = {
        **in_group("replay", "hindsight"),
        **in_group("replay", "hindsight_share", needs="hindsight"),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hindsight == "none":
            return
        if self.n_step != 1:
            raise UsageError(
                f"n_step is {self.n_step}; with hindsight it must be 1, as rewards of earlier steps have another goal."
            )
        if self.recurrent != "none":
            raise UsageError("hindsight is for transitions; recurrent layers learn from sequences. Choose one of them.")

    def memory(self) -> ReplaySpec | SequenceSpec:
        """Return the spec of the replay buffer, with hindsight if selected."""
        spec = super().memory()
        if self.hindsight == "none":
            return spec
        return dataclasses.replace(spec, hindsight=HindsightSpec(self.hindsight, self.hindsight_share))

    def network_observation(self, observation: Space) -> Space:
        """Return the observation space of networks, with hindsight without the achieved goal."""
        if self.hindsight == "none" or not isinstance(observation, Dict):
            return observation
        return Dict(tuple((name, part) for name, part in observation.parts if name != ACHIEVED))

    def check_goals(self, observation: Space, environment: str) -> None:
        """Raise UsageError if hindsight is selected and observations have no goals or nothing else."""
        if self.hindsight == "none":
            return
        parts = dict(observation.parts) if isinstance(observation, Dict) else {}
        achieved, desired = parts.get(ACHIEVED), parts.get(DESIRED)
        if not (isinstance(achieved, Box) and isinstance(desired, Box) and achieved.shape == desired.shape):
            raise UsageError(
                f"hindsight needs {ACHIEVED} and {DESIRED} in observations, two Boxes of one shape; {environment} "
                f"observes {observation}. Turn hindsight off, or use an environment with goals."
            )
        if len(parts) == 2:
            raise UsageError(f'{environment} observes only goals. Add a part "observation".')
