"""Deep Q-learning from Demonstrations: DQN that also learns from an expert's actions.

    each update; the first `pretraining_updates` are on demonstrations only
        a batch of the agent's transitions and of demonstrations
        δₙ = Q(s, a) - yₙ,  δ₁ = Q(s, a) - y₁          DQN's targets after n steps and after one
        J_E = max_a [Q(s, a) + l(a_E, a)] - Q(s, a_E)    for demonstrations only; l is 0 for a = a_E, else the margin
        minimize    mean w (λₙ ℓ(δₙ) + λ₁ ℓ(δ₁) + λ_E J_E)   with weight decay
    priority             λₙ |δₙ| + λ₁ |δ₁|, plus ε, which may be larger for demonstrations

The facts that define DQfD:

- Only demonstrations have the large-margin loss J_E. Its gradient goes through both of its terms.
- Priorities sum the absolute values of one-step and n-step errors, so the errors cannot cancel.
- Demonstrations are never overwritten.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from array_api_compat import array_namespace

from duetto.algorithms.base import (
    PRIORITY,
    Batch,
    DemonstrationSpec,
    LossAndInfo,
    ReplaySpec,
    SequenceBatch,
    SequenceSpec,
)
from duetto.algorithms.dqn import DQN
from duetto.algorithms.options import Count, CountOrZero, Fraction, NonNegative, Option, OptionTable, in_group
from duetto.functional.q_values import huber, large_margin, value_of_action


@dataclass(frozen=True)
class DQfD(DQN):
    """Deep Q-learning from Demonstrations (Hester et al., 2018, arXiv:1704.03732)."""

    demonstrations: str = ""
    """Folder of the demonstrations, from `duetto demos record`."""
    demonstration_share: Fraction = 0.25
    """ρ: each item of a batch is a demonstration with this probability; ρ may be below 1 / batch_size."""
    share_by_priority: bool = False
    """Sample demonstrations and the agent's experience by priority, instead of a fixed share."""
    demonstration_priority_epsilon: NonNegative = 0.0
    """Added to every demonstration's priority; 0 to use priority_epsilon."""
    pretraining_updates: CountOrZero = 0
    """Updates from demonstrations before the first step."""

    n_step: Count = 10
    n_step_weight: NonNegative = 1.0
    """λₙ: weight of the n-step loss."""
    one_step_weight: NonNegative = 1.0
    """λ₁: weight of the one-step loss."""
    margin_weight: NonNegative = 1.0
    """λ_E: weight of the large-margin loss."""
    margin: NonNegative = 0.8
    """Margin of the expert's action over other actions, on the scale of the learned values."""
    margin_in_priority: bool = False
    """Add the large-margin loss to the priorities."""
    prioritized: bool = True
    weight_decay: NonNegative = 1e-5
    decoupled_weight_decay: bool = True

    option_table: ClassVar[OptionTable] = {
        **in_group("demonstrations", "demonstrations", "pretraining_updates", search="auto"),
        "demonstration_share": Option("demonstrations", search={"factor": 4}),
        **in_group("demonstrations", "share_by_priority", "demonstration_priority_epsilon", rare=True),
        **in_group("", "margin_in_priority", rare=True),
    }

    def loss(self, nets: Any, batch: Batch | SequenceBatch) -> LossAndInfo:
        """Return λₙ J_n + λ₁ J_1 + λ_E J_E (equation 4; its J_L2 is the optimizer's weight decay)."""
        xp = array_namespace(batch.reward)
        values = nets.q(batch.obs)
        q = value_of_action(values, batch.action)
        target = self.target(nets, batch.reward, batch.discount, batch.next_obs)
        info = {"q": q, "target": target}
        losses = self.n_step_weight * huber(q - target, self.huber_delta)
        priority = self.n_step_weight * xp.abs(q - target)
        if self.one_step_weight > 0:
            error = q - self.target(nets, *batch.first_step())
            losses = losses + self.one_step_weight * huber(error, self.huber_delta)
            priority = priority + self.one_step_weight * xp.abs(error)
        if self.margin_weight > 0:
            margin = batch.of_experts(large_margin(values, batch.action, self.margin))
            losses = losses + self.margin_weight * margin
            info["margin_loss"] = batch.mean(margin)
            priority = priority + self.margin_weight * margin if self.margin_in_priority else priority
        return batch.weighted_mean(losses), info | {PRIORITY: priority}

    def memory(self) -> ReplaySpec | SequenceSpec:
        """Return the spec of the replay buffer with demonstrations and, for the one-step loss, with first steps."""
        demonstrations = DemonstrationSpec(
            share=self.demonstration_share,
            by_priority=self.share_by_priority,
            priority_epsilon=self.demonstration_priority_epsilon,
            pretraining=self.pretraining_updates,
        )
        return replace(super().memory(), demonstrations=demonstrations, one_step=self.one_step_weight > 0)
