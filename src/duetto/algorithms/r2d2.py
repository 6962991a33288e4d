"""Recurrent Replay Distributed DQN: DQN with a recurrent network that learns from sequences.

    act          as DQN; each environment has a state (h, c), a previous action and a previous reward
    sequence     burn_in + unroll steps of one episode, with the state before its first step
    each update  a batch of sequences by priority; both networks run through each, the first `burn_in` steps only to
                 warm the state up; then DQN's loss at every step, on R2D2's value scale h
    priority     η max_t |δ_t| + (1 - η) mean_t |δ_t|, over the steps in the loss

The facts that make it R2D2: stored states and burn-in, without gradient, for the online and the target network alike;
the argmax comes from the online network with its own state, the value from the target network with its own; n-step
targets stop at the episode's end and use shorter windows at a sequence's end, so no step is lost; rewards are not
clipped, values rescaled instead; each environment explores with its own ε; the end of a life does not end an episode.
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

    Its maths is DQN's: the network carries a state, and batches are sequences. Only the defaults differ.
    """

    batch_size: Count = 64
    """Sequences per update."""
    train_every: Count = 4
    """Steps between updates."""
    learning_starts: CountOrZero = 5_000
    adam_epsilon: Positive = 1e-3
    max_grad_norm: NonNegative = 40.0
    exploration: EpsilonSchedule = "ladder"
    exploration_start: Fraction = 0.4
    hidden: Sizes = ()
    """Units of hidden layers before the recurrent ones."""
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
    """β: importance weights correct the sampling bias; 0 for none."""
    importance_anneal_samples: CountOrZero = 0
    target_period: Count = 2_500
    huber_delta: NonNegative = 0.0
    rescale_values: bool = True
