"""Behavior cloning: predict the expert's action. A baseline for R2D3, with the same network and buffer.

    each update  a batch of demonstrations: minimize    mean -log softmax(f(s))(a_E)
    act          as R2D2, with f instead of Q; evaluations take argmax_a f(s, a)

BC does not learn from the agent's steps. It still makes as many steps per update as R2D3, so that learning curves over
steps are comparable.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from duetto.algorithms.base import (
    PRIORITY,
    Batch,
    DemonstrationSpec,
    LossAndInfo,
    ReplaySpec,
    SequenceBatch,
    SequenceSpec,
    Updater,
)
from duetto.algorithms.options import CountOrZero, Fraction, OptionTable, in_group
from duetto.algorithms.r2d2 import R2D2
from duetto.functional.distributions import Categorical

# pyright: reportIncompatibleVariableOverride=false


@dataclass(frozen=True)
class BC(R2D2):
    """Behavior cloning (Pomerleau, 1991) with R2D2's network; feedforward with `--recurrent none`."""

    demonstrations: str = ""
    """Folder of the demonstrations, from `duetto demos record`."""
    demonstration_share: Fraction = 1.0
    """ρ: each sequence of a batch is a demonstration with this probability."""
    pretraining_updates: CountOrZero = 0
    """Updates from demonstrations before the first step."""
    learning_starts: CountOrZero = 0
    """Steps before the first update; BC never learns from the agent's steps."""
    prioritized: bool = False
    """Sample items with larger losses more often."""

    # Not options of BC, because it learns no values.
    discount: ClassVar[float] = 1.0
    n_step: ClassVar[int] = 1
    tau: ClassVar[float] = 1.0
    target_period: ClassVar[int] = 1
    double: ClassVar[bool] = False
    huber_delta: ClassVar[float] = 0.0
    rescale_values: ClassVar[bool] = False
    rescale_epsilon: ClassVar[float] = 0.0

    option_table: ClassVar[OptionTable] = {
        **in_group("demonstrations", "demonstrations", "pretraining_updates", search="auto"),
        **in_group("demonstrations", "demonstration_share"),
    }

    def loss(self, nets: Any, batch: Batch | SequenceBatch) -> LossAndInfo:
        """Return the cross-entropy of the expert's actions."""
        losses = batch.of_experts(-Categorical(nets.q(batch.obs)).log_prob(batch.action))
        return batch.weighted_mean(losses), {PRIORITY: losses}

    def update(self, learner: Updater, batch: Batch | SequenceBatch, noise: Any, phase: int) -> None:
        """Make one optimizer step on `loss`."""
        learner.minimize("q", self.loss, batch)

    def targets(self) -> dict[str, str]:
        """Return no target networks."""
        return {}

    def memory(self) -> ReplaySpec | SequenceSpec:
        """Return the spec of the replay buffer with demonstrations."""
        demonstrations = DemonstrationSpec(self.demonstration_share, pretraining=self.pretraining_updates)
        return replace(super().memory(), demonstrations=demonstrations)
