"""Behavior cloning: predict the expert's action. A baseline for R2D3, with the same network and buffer.

    each update  a batch of demonstrations: one step down    mean -log softmax(f(s))(a_E)
    act          argmax_a f(s, a)

It does not learn from its own steps. It takes as many per update as R2D3, so that curves over steps are comparable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from duetto.algorithms.base import PRIORITY, Array, Batch, CountOrZero, Fraction, SequenceBatch, Updater
from duetto.algorithms.off_policy import LearnsFromDemonstrations
from duetto.algorithms.options import OptionTable, in_group
from duetto.algorithms.value_based import SequenceValueBased
from duetto.functional.imitation import cross_entropy


@dataclass(frozen=True)
class BC(SequenceValueBased, LearnsFromDemonstrations):
    """Behavior cloning (Pomerleau, 1991) with R2D2's network; feedforward with `--recurrent none`."""

    demonstration_share: Fraction = 1.0
    """ρ: each sequence of a batch is a demonstration with this probability."""
    learning_starts: CountOrZero = 0
    """Steps before the first update; they do not affect learning."""

    option_table: ClassVar[OptionTable] = in_group("demonstrations", "demonstration_share")

    def loss(self, nets: Any, batch: Batch | SequenceBatch) -> tuple[Array, dict[str, Array]]:
        """Cross-entropy of the expert's actions."""
        losses = batch.of_experts(cross_entropy(nets.q(batch.obs), batch.action))
        return batch.weighted_mean(losses), {PRIORITY: losses}

    def update(self, learner: Updater, batch: Batch | SequenceBatch, noise: Any, phase: int) -> None:
        """Make one optimizer step on `loss`."""
        learner.minimize("q", self.loss, batch)
