"""Schedule of updates: when to update, and on how many batches."""

from __future__ import annotations

from typing import Self

from duetto.algorithms.base import ReplaySpec, SequenceSpec
from duetto.functional import state_schema


class Schedule:
    """Counts steps and the batches that are due.

    Every `train_every` steps after `learning_starts`, `gradient_steps` batches become due.

    With `train_at_episode_end`, batches become due at every end of an episode after `learning_starts`:
    gradient_steps / train_every batches for each step since the previous updates. For the first updates, this includes
    the steps before `learning_starts`.

        learning_starts 3, train_every 2, gradient_steps 2
        step              1  2  3  4  5  6  7
        batches due       .  .  .  .  2  .  2
    """

    def __init__(
        self, learning_starts: int, train_every: int, gradient_steps: int, train_at_episode_end: bool = False
    ) -> None:
        self._learning_starts = learning_starts
        self._train_every = train_every
        self._gradient_steps = gradient_steps
        self._train_at_episode_end = train_at_episode_end
        self._steps = 0
        self._debt = 0
        self._due = 0

    @classmethod
    def of(cls, spec: ReplaySpec | SequenceSpec) -> Self:
        """Return the schedule of a replay buffer with this spec."""
        at_episode_end = isinstance(spec, ReplaySpec) and spec.train_at_episode_end
        return cls(spec.learning_starts, spec.train_every, spec.gradient_steps, at_episode_end)

    def advance(self, steps: int, episode_ended: bool) -> None:
        """Count `steps` new steps; `episode_ended` is whether any of them ended an episode."""
        self._steps += steps
        beyond = min(steps, max(0, self._steps - self._learning_starts))
        self._debt += (steps if self._train_at_episode_end else beyond) * self._gradient_steps
        if not self._train_at_episode_end:
            unit = self._gradient_steps * self._train_every
            self._due += self._debt // unit * self._gradient_steps
            self._debt %= unit
        elif episode_ended and self._steps > self._learning_starts:
            self._due += self._debt // self._train_every
            self._debt %= self._train_every

    @property
    def due(self) -> bool:
        """Whether a batch is due."""
        return self._due > 0

    def take(self) -> bool:
        """Remove one batch from the due ones; return False if none is due."""
        if self._due == 0:
            return False
        self._due -= 1
        return True

    def state_dict(self) -> dict[str, int]:
        """Return the number of steps and of due batches, and `debt`.

        `debt` is the number of steps that no batch was counted for yet, times gradient_steps.
        """
        return {"steps": self._steps, "debt": self._debt, "due": self._due}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Restore the result of `state_dict`."""
        state_schema.check(state, {"steps": int, "debt": int, "due": int}, "memory/schedule")
        self._steps, self._debt, self._due = int(state["steps"]), int(state["debt"]), int(state["due"])
