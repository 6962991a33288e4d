"""Schedule of updates: when to update, and on how many batches."""

from __future__ import annotations

from duetto.algorithms.base import StoredSpec


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

    def __init__(self, spec: StoredSpec) -> None:
        self._spec, self._at_end = spec, getattr(spec, "train_at_episode_end", False)
        self._steps = self._debt = self._due = 0

    def advance(self, steps: int, episode_ended: bool) -> None:
        """Count `steps` new steps; `episode_ended` is whether any of them ended an episode."""
        self._steps += steps
        beyond = min(steps, max(0, self._steps - self._spec.learning_starts))
        self._debt += (steps if self._at_end else beyond) * self._spec.gradient_steps
        if not self._at_end:
            unit = self._spec.gradient_steps * self._spec.train_every
            self._due += self._debt // unit * self._spec.gradient_steps
            self._debt %= unit
        elif episode_ended and self._steps > self._spec.learning_starts:
            self._due += self._debt // self._spec.train_every
            self._debt %= self._spec.train_every

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
        self._steps, self._debt, self._due = (state[name] for name in ("steps", "debt", "due"))
