"""Behaviour cloning: say what the expert would do. A baseline for R2D3, with the same network and memory.

    each update  a batch of demonstrations: one step down    mean -log softmax(f(s))(a_E)
    act          argmax_a f(s, a)

It learns nothing from its own steps. They are made all the same, as many per update as R2D3 makes, so that curves over
steps can stand side by side.
"""
# pyright: reportIncompatibleVariableOverride=false

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from duetto.algorithms.base import Array, Batch, Fraction, SequenceBatch, Updater
from duetto.algorithms.demonstrated import Demonstrated
from duetto.algorithms.r2d2 import R2D2
from duetto.functional.imitation import cross_entropy


@dataclass(frozen=True)
class BC(R2D2, Demonstrated):
    """Behaviour cloning (Pomerleau, 1991) with R2D2's network; `--recurrent none` has no memory of the episode."""

    demonstration_share: Fraction = 1.0
    """ρ: each sequence of a batch is a demonstration with this probability."""
    prioritized: bool = False
    """Sample in proportion to the loss instead of uniformly."""

    # What only Q-learning reads is no option here.
    discount: ClassVar[float] = 1.0
    n_step: ClassVar[int] = 1
    ignore_termination: ClassVar[bool] = False
    tau: ClassVar[float] = 1.0
    target_period: ClassVar[int] = 1
    double: ClassVar[bool] = False
    huber_delta: ClassVar[float] = 0.0
    rescale_values: ClassVar[bool] = False
    rescale_epsilon: ClassVar[float] = 1e-3

    def loss(self, nets: Any, batch: Batch | SequenceBatch) -> tuple[Array, dict[str, Array]]:
        """The cross-entropy of the expert's actions."""
        losses = batch.of_experts(cross_entropy(nets.q(batch.obs), batch.action))
        return batch.weighted_mean(losses), {"priority": losses}

    def targets(self) -> dict[str, str]:
        """None."""
        return {}

    def phase(self, update: int) -> int:
        """All are alike."""
        return 0

    def update(self, learner: Updater, batch: Batch | SequenceBatch, noise: Any, phase: int) -> None:
        """One step."""
        learner.minimize("q", self.loss, batch)
