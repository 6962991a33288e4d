"""Hindsight Experience Replay, as an option of off-policy algorithms: what was reached stands in for what was wanted.

    environment  observes {observation, achieved_goal, desired_goal}, and says r(achieved, desired) of any two goals
    networks     see observation and desired_goal
    each batch   (s, a, r, γ, s', g) as the memory has it; then for each item with probability `hindsight_share`
                 g ← the achieved goal of s'ⱼ,   j a step of the same episode:   future   uniform from this step on
                                                                                final    the last one
                                                                                episode  uniform
                 r ← r(achieved goal of s', g),   and whether s' terminates, where the environment says it of goals

The facts that make it HER: goals are replaced when a batch is drawn, never in what is stored; they come from the same
episode, with "future" from this step or later; rewards are the environment's own for the new goal.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar, Literal

from duetto.algorithms.base import Fraction, HindsightSpec, ReplaySpec, SequenceSpec
from duetto.algorithms.offpolicy import OffPolicy
from duetto.algorithms.searching import Search
from duetto.errors import UsageError
from duetto.networks.spaces import Box, Dict, Space

ACHIEVED, DESIRED = "achieved_goal", "desired_goal"


@dataclass(frozen=True)
class Hindsight(OffPolicy):
    """Hyper-parameters of every algorithm that can learn from goals it did not have."""

    hindsight: Literal["none", "future", "final", "episode"] = "none"
    """Learn as if a goal that was reached had been wanted: one from later in the episode, its last, or any of it."""
    hindsight_share: Fraction = 0.8
    """Items of a batch whose goal is replaced; 0.8 is the paper's k = 4."""

    tuned: ClassVar[dict[str, Search | None]] = {"hindsight": None, "hindsight_share": None}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hindsight == "none":
            return
        if self.n_step != 1:
            raise UsageError(
                f"n_step is {self.n_step}; with hindsight it must be 1: the rewards between were for another goal."
            )
        if self.recurrent != "none":
            raise UsageError(
                "hindsight is for single steps; recurrent layers learn from sequences. Choose one of them."
            )

    def memory(self) -> ReplaySpec | SequenceSpec:
        """The memory, with goals of hindsight if asked for."""
        spec = super().memory()
        if self.hindsight == "none":
            return spec
        return dataclasses.replace(spec, hindsight=HindsightSpec(self.hindsight, self.hindsight_share))

    def seen(self, observation: Space) -> Space:
        """The part of observations that networks see: all, but with hindsight not what was achieved."""
        if self.hindsight == "none" or not isinstance(observation, Dict):
            return observation
        return Dict(tuple((name, part) for name, part in observation.parts if name != ACHIEVED))

    def check_goals(self, observation: Space, environment: str) -> None:
        """Raise UsageError where hindsight is asked for and observations have no goals, or goals alone."""
        if self.hindsight == "none":
            return
        parts = dict(observation.parts) if isinstance(observation, Dict) else {}
        achieved, desired = parts.get(ACHIEVED), parts.get(DESIRED)
        if not (isinstance(achieved, Box) and isinstance(desired, Box) and achieved.shape == desired.shape):
            raise UsageError(
                f"hindsight needs observations with {ACHIEVED} and {DESIRED}, two Boxes of one shape; {environment} "
                f"observes {observation}. Leave hindsight off, or use an environment with goals."
            )
        if len(parts) == 2:
            raise UsageError(f'{environment} observes goals alone. Give it a part "observation" beside them.')
