"""Prioritised replay: transitions with a large error come more often."""

from __future__ import annotations

from typing import Any

import numpy as np

from duetto.algorithms.base import Prioritization, ReplaySpec
from duetto.errors import NonFiniteError
from duetto.memory.base import Experience, Sample
from duetto.memory.draws import Line, ProportionalDraws
from duetto.memory.fields import Field
from duetto.memory.hindsight import Goals
from duetto.memory.replay import Replay


class PrioritizedReplay(Replay):
    """Proportional prioritised replay (Schaul et al., 2016, arXiv:1511.05952); `draws` has its rules.

    A priority fed back for a transition that was overwritten meanwhile is ignored.
    """

    needs_priorities = True

    def __init__(
        self,
        spec: ReplaySpec,
        prioritization: Prioritization,
        fields: dict[str, Field],
        num_envs: int,
        rows: int,
        random: np.random.Generator,
        goals: Goals | None = None,
    ) -> None:
        """Use `memory.build`."""
        super().__init__(spec, fields, num_envs, rows, random, goals)
        self.draws: ProportionalDraws = ProportionalDraws(num_envs * rows, prioritization)

    def feedback(self, sample: Sample, priority: np.ndarray | None) -> None:
        """Give the transitions of `sample` new priorities |δ| (B,); if one comes twice, its last one stays.

        Raises:
            NonFiniteError: a priority is NaN or infinite.
            ValueError: a priority is negative, or their number is not the sample's.
        """
        self.prioritize(sample.index, sample.stamp, checked(sample, priority))

    def prioritize(self, index: np.ndarray, stamp: np.ndarray, priority: np.ndarray) -> None:
        """Give the transitions at `index` (B,) new priorities (B,), where they are still those of `stamp`."""
        current = self._rings.number(index) == stamp
        self.draws.feedback(index[current], priority[current])

    @property
    def line(self) -> Line:
        """All items."""
        return self.draws.line._replace(items=len(self))

    def state_dict(self) -> dict[str, Any]:
        """Everything but the transitions: the uniform memory's state, and p^α of every index."""
        return super().state_dict() | self.draws.state_dict(self._every_index())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Undo `state_dict`; see `Replay.load_state_dict`."""
        super().load_state_dict(state)
        self.draws.load_state_dict(self._every_index(), state)

    def _every_index(self) -> np.ndarray:
        return np.arange(len(self._rings.written) * self.rows)

    def _store(self, experience: Experience) -> np.ndarray:
        index = super()._store(experience)
        self.draws.renew(index)
        return index

    def _draw(self, wanted: int) -> tuple[np.ndarray, np.ndarray]:
        return self.draws.draw(wanted, self._random)

    def _find(self, point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        index = self.draws.find(point)
        return index, self.draws.mass(index)


def checked(sample: Sample, priority: np.ndarray | None) -> np.ndarray:
    """Priorities |δ| (B,) of a sample as float64; see `PrioritizedReplay.feedback` for what is raised."""
    if priority is None:
        raise ValueError("Prioritised replay needs a priority for every transition of the sample, not None")
    error = np.asarray(priority, np.float64)
    if error.shape != sample.index.shape:
        raise ValueError(f"The priorities have shape {error.shape}, the sample {sample.index.shape}")
    if not np.isfinite(error).all():
        position = int(np.argmin(np.isfinite(error)))
        raise NonFiniteError(
            f"Priority {position} of the batch is {error[position]}: the loss has diverged. "
            "Lower the learning rate, or clip the gradients."
        )
    if error.min() < 0:
        raise ValueError(f"A priority is {error.min()}; priorities are absolute errors, never negative")
    return error
