"""Prioritised replay: transitions with a large error come more often."""

from __future__ import annotations

from typing import Any

import numpy as np

from duetto.algorithms.base import Prioritization, ReplaySpec
from duetto.errors import NonFiniteError
from duetto.functional.priorities import annealed_exponent, importance_weights, mass
from duetto.memory.base import Experience, Sample
from duetto.memory.fields import Field
from duetto.memory.replay import Replay
from duetto.memory.tree import MinTree, SumTree


class PrioritizedReplay(Replay):
    """Proportional prioritised replay (Schaul et al., 2016, arXiv:1511.05952).

    - P(i) = p_i^α / Σ p^α with p = |δ| + ε; a batch of B takes one draw from each of B equal parts of the total.
    - A new transition gets the largest |δ| seen so far, at first 1, so that it is soon seen.
    - Weights (N · P)^-β are divided by the largest of all *stored* transitions, not of the batch.
    - A priority fed back for a transition that was overwritten meanwhile is ignored.
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
    ) -> None:
        """Use `memory.build`."""
        super().__init__(spec, fields, num_envs, rows, random)
        self._prioritization = prioritization
        self._sums = SumTree(num_envs * rows)  # p^α, 0 where nothing is stored
        self._minima = MinTree(num_envs * rows)  # p^α, infinite where nothing is stored
        self._largest = 1.0  # |δ|, without ε
        self._sampled = 0  # batches

    def feedback(self, sample: Sample, priority: np.ndarray | None) -> None:
        """Give the transitions of `sample` new priorities |δ| (B,); if one comes twice, its last one stays.

        Raises:
            NonFiniteError: a priority is NaN or infinite.
            ValueError: a priority is negative, or their number is not the sample's.
        """
        error = self._checked(sample, priority)
        current = self._rings.number(sample.index) == sample.stamp
        index, error = sample.index[current], error[current]
        if len(index):
            self._largest = max(self._largest, float(error.max()))
            self._set(index, error + self._prioritization.epsilon)

    def state_dict(self) -> dict[str, Any]:
        """Everything but the transitions: the uniform memory's state, and p^α of every index."""
        return super().state_dict() | {
            "mass": self._sums.leaves.copy(),
            "largest_priority": self._largest,
            "sampled": self._sampled,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Undo `state_dict`; see `Replay.load_state_dict`."""
        super().load_state_dict(state)
        self._sums.fill(state["mass"])
        self._minima.fill(np.where(state["mass"] > 0, state["mass"], np.inf))
        self._largest = float(state["largest_priority"])
        self._sampled = int(state["sampled"])

    def _store(self, experience: Experience) -> np.ndarray:
        index = super()._store(experience)
        self._set(index, np.float64(self._largest))
        return index

    def _set(self, index: np.ndarray, priority: np.ndarray | np.float64) -> None:
        masses = mass(np.asarray(priority), self._prioritization.exponent)
        self._sums.set(index, masses)
        self._minima.set(index, masses)

    def _draw(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        wanted = self._spec.batch_size
        strata = np.arange(wanted) + self._random.random(wanted)
        index = self._sums.find(strata * (self._sums.root / wanted))
        return index, self._weights(index)

    def _weights(self, index: np.ndarray) -> np.ndarray:
        prioritization, sampled = self._prioritization, self._sampled
        self._sampled += 1
        if prioritization.importance_exponent == 0:
            return np.ones(len(index), np.float32)
        exponent = annealed_exponent(
            prioritization.importance_exponent, sampled, prioritization.importance_anneal_samples
        )
        weights = importance_weights(self._sums.leaves.take(index), self._minima.root, exponent)
        return weights.astype(np.float32)

    @staticmethod
    def _checked(sample: Sample, priority: np.ndarray | None) -> np.ndarray:
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
