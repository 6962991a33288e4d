"""Recurrent Replay Distributed DQN from Demonstrations: R2D2 on batches that are in part an expert's sequences.

    each update  a batch of B sequences: K ~ Binomial(B, ρ) demonstrations, and B − K of the agent
                 R2D2's n-step loss                      all there is in the paper (preset `paper`)
                 + the one-step and the margin loss      DQfD's, on R2D2's value scale h (preset `di-engine`, default)
    priority     R2D2's, η max_t e_t + (1 - η) mean_t e_t, kept for demonstrations and own sequences separately;
                 e_t = λₙ|δₙ| + λ₁|δ₁|, of the n-step and the one-step error

The facts that make it R2D3: recurrence, because the tasks show little at once; ρ may be far below 1/B, so that most
batches hold no demonstration; demonstrations are cut into sequences as the agent's episodes are, and start from a zero
state and a burn-in; weights are normalized among the agent's sequences and among the demonstrations.
"""

from __future__ import annotations

from dataclasses import dataclass

from duetto.algorithms.dqfd import DQfD
from duetto.algorithms.options import Count, CountOrZero, Fraction, NonNegative
from duetto.algorithms.r2d2 import R2D2


@dataclass(frozen=True)
class R2D3(R2D2, DQfD):
    """R2D3 (Paine et al., 2019, arXiv:1909.01387): R2D2's network, memory and exploration, DQfD's losses.

    Losses, sequences, share of demonstrations and weight decay are DI-engine's by default, all else is R2D2's; preset
    `di-engine` has all of DI-engine's. The paper has no one-step and no margin loss: preset `paper`.
    """

    demonstration_share: Fraction = 0.25
    """ρ: each sequence of a batch is a demonstration with this probability, also far below 1 / batch_size."""
    n_step: Count = 5
    """Rewards summed before bootstrapping; fewer at the end of an episode or a sequence."""
    burn_in: CountOrZero = 2
    unroll: Count = 40
    overlap: CountOrZero = 2
    weight_decay: NonNegative = 1e-5
    decoupled_weight_decay: bool = True
