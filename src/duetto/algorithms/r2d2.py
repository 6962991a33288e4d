"""Recurrent Replay Distributed DQN: DQN with a recurrent network that learns from sequences.

    act          as DQN; each environment has a hidden state (h, c), a previous action and a previous reward
    sequence     burn_in + unroll steps of one episode, with the hidden state before its first step
    each update  a batch of sequences by priority; both networks run through each sequence: `burn_in` steps only update
                 the hidden state, each later step has DQN's loss, on R2D2's value scale h
    priority     η max_t |δ_t| + (1 - η) mean_t |δ_t|, over the steps in the loss

The facts that define R2D2:

- Online and target network both start from the stored hidden state and a burn-in, through which no gradient goes.
- Each of the two networks has its own hidden state. The online network selects the argmax, the target network
  evaluates this action.
- n-step targets stop at the end of an episode, and are shorter at the end of a sequence, so no step is lost.
- Values are rescaled, and rewards are not clipped.
- Each environment explores with its own ε.
- In Atari games, the end of a life does not end an episode.
"""

from __future__ import annotations

from dataclasses import dataclass

from duetto.algorithms.dqn import DQN
from duetto.algorithms.exploration import EpsilonSchedule
from duetto.algorithms.options import Count, CountOrZero, Fraction, NonNegative, Positive, Sizes
from duetto.networks.layers import Recurrent


@dataclass(frozen=True)
class R2D2(DQN):
    """Recurrent Replay Distributed DQN (Kapturowski et al., 2019, openreview.net/forum?id=r1lyTjAqYX).

    The equations are DQN's, on sequences and with a recurrent network. Only the defaults differ.
    """

    batch_size: Count = 64
    """Sequences per update."""
    train_every: Count = 4
    """Update the networks every N steps."""
    learning_starts: CountOrZero = 5_000
    adam_epsilon: Positive = 1e-3
    max_grad_norm: NonNegative = 40.0
    exploration: EpsilonSchedule = "ladder"
    exploration_start: Fraction = 0.4
    hidden: Sizes = ()
    """Units of hidden layers before the recurrent layers."""
    head_hidden: Sizes = (512,)
    recurrent: Recurrent = "lstm"
    recurrent_size: Count = 512
    burn_in: CountOrZero = 40
    unroll: Count = 40
    overlap: CountOrZero = 40
    discount: Fraction = 0.997
    n_step: Count = 5
    """Rewards summed before bootstrapping; fewer at the end of an episode or a sequence."""
    prioritized: bool = True
    priority_exponent: NonNegative = 0.9
    importance_exponent: Fraction = 0.6
    """β of the importance weights, which correct the sampling bias; 0 for no weights."""
    importance_anneal_samples: CountOrZero = 0
    target_period: Count = 2_500
    huber_delta: NonNegative = 0.0
    rescale_values: bool = True
