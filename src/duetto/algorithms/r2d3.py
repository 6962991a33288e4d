"""Recurrent Replay Distributed DQN from Demonstrations: R2D2 with a share of an expert's sequences in its batches.

    each update  a batch of B sequences: K ~ Binomial(B, ρ) demonstrations, and B − K of the agent
                 R2D2's n-step loss                      the only loss of the paper (preset `paper`)
                 + DQfD's one-step and margin loss       on R2D2's value scale h (preset `di-engine`, default)
    priority     η max_t e_t + (1 - η) mean_t e_t, as in R2D2, with e_t = λₙ|δₙ| + λ₁|δ₁| (n-step and one-step error);
                 demonstrations and the agent's sequences have separate sum trees

The facts that define R2D3:

- The network is recurrent, because one observation shows little of the state in the paper's tasks.
- ρ may be far below 1/B, so that most batches contain no demonstration.
- Demonstrations are cut into sequences like the agent's episodes. Their sequences start from a zero hidden state and a
  burn-in.
- Importance weights are normalized separately among the agent's sequences and among the demonstrations.
"""

from __future__ import annotations

from dataclasses import dataclass

from duetto.algorithms.dqfd import DQfD
from duetto.algorithms.options import Count, CountOrZero, Fraction, NonNegative
from duetto.algorithms.r2d2 import R2D2


@dataclass(frozen=True)
class R2D3(R2D2, DQfD):
    """R2D3 (Paine et al., 2019, arXiv:1909.01387): R2D2's network, memory and exploration, DQfD's losses.

    By default, losses, sequence lengths, the share of demonstrations and weight decay are as in DI-engine; all other
    options are as in R2D2. The preset `di-engine` follows DI-engine's settings. The paper uses only the n-step loss,
    and the preset `paper` turns the one-step and the margin loss off.
    """

    demonstration_share: Fraction = 0.25
    """ρ: each sequence of a batch is a demonstration with this probability; ρ may be below 1 / batch_size."""
    n_step: Count = 5
    """Rewards summed before bootstrapping; fewer at the end of an episode or a sequence."""
    burn_in: CountOrZero = 2
    unroll: Count = 40
    overlap: CountOrZero = 2
    weight_decay: NonNegative = 1e-5
    decoupled_weight_decay: bool = True
