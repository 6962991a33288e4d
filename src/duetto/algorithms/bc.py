"""Behaviour cloning: say what the expert would do. A baseline for R2D3, with the same network and memory.

    each update  a batch of demonstrations: one step down    mean -log softmax(f(s))(a_E)
    act          argmax_a f(s, a)

It learns nothing from its own steps. They are made all the same, as many per update as R2D3 makes, so that curves over
steps can stand side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from duetto.algorithms.base import PRIORITY, Array, Batch, CountOrZero, Fraction, SequenceBatch, Updater
from duetto.algorithms.choices import SequenceChoices
from duetto.algorithms.demonstrated import Demonstrated
from duetto.algorithms.searching import Search
from duetto.functional.imitation import cross_entropy


@dataclass(frozen=True)
class BC(SequenceChoices, Demonstrated):
    """Behaviour cloning (Pomerleau, 1991) with R2D2's network; `--recurrent none` has no memory of the episode."""

    demonstration_share: Fraction = 1.0
    """ρ: each sequence of a batch is a demonstration with this probability."""
    learning_starts: CountOrZero = 0
    """Steps before the first update; nothing is learned from them."""

    tuned: ClassVar[dict[str, Search | None]] = {"demonstration_share": None}

    def loss(self, nets: Any, batch: Batch | SequenceBatch) -> tuple[Array, dict[str, Array]]:
        """The cross-entropy of the expert's actions, a scalar, and the report."""
        losses = batch.of_experts(cross_entropy(nets.q(batch.obs), batch.action))
        return batch.weighted_mean(losses), {PRIORITY: losses}

    def update(self, learner: Updater, batch: Batch | SequenceBatch, noise: Any, phase: int) -> None:
        """Make one optimiser step on `loss`."""
        learner.minimize("q", self.loss, batch)
