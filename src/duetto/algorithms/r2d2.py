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
from typing import Annotated, Literal

from duetto.algorithms.base import Bounds, Count, CountOrZero, Fraction, NonNegative, Positive
from duetto.algorithms.dqn import DQN


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
    """Steps before the first update."""
    adam_epsilon: Positive = 1e-3
    """Adam's ε."""
    max_grad_norm: NonNegative = 40.0
    """Global L2 norm that the gradient is clipped to; 0 turns clipping off."""
    exploration: Literal["linear", "exponential", "ladder"] = "ladder"
    """ε falls linearly or exponentially, or each environment has a constant ε (ladder, Ape-X)."""
    exploration_start: Fraction = 0.4
    """Initial ε; of a ladder, the largest one."""
    hidden: Annotated[tuple[int, ...], Bounds(1)] = ()
    """Units of hidden layers before the recurrent ones."""
    head_hidden: Annotated[tuple[int, ...], Bounds(1)] = (512,)
    """Units of further hidden layers, in each stream of a dueling network."""
    recurrent: Literal["none", "lstm", "gru"] = "lstm"
    """Recurrent layers, for tasks in which one observation does not show the state."""
    recurrent_size: Count = 512
    """Units of the recurrent layers."""
    burn_in: CountOrZero = 40
    """Steps at the start of a sequence that only update the hidden state."""
    unroll: Count = 40
    """Steps of a sequence in the loss."""
    overlap: CountOrZero = 40
    """Steps that a sequence shares with the next."""
    discount: Fraction = 0.997
    """γ: the weight of a reward one step later."""
    n_step: Count = 5
    """Rewards summed before bootstrapping; shorter where an episode or a sequence ends."""
    prioritized: bool = True
    """Sample in proportion to the TD error instead of uniformly."""
    priority_exponent: NonNegative = 0.9
    """α: 0 samples uniformly, 1 in proportion to the priority."""
    importance_exponent: Fraction = 0.6
    """β: importance weights correct the sampling bias; 0 for none."""
    importance_anneal_samples: CountOrZero = 0
    """Sampled batches over which β rises to 1; 0 for a constant β."""
    target_period: Count = 2_500
    """Updates between two updates of the target network."""
    huber_delta: NonNegative = 0.0
    """Errors above this have a linear loss; 0 for the squared loss."""
    rescale_values: bool = True
    """Learn values on R2D2's scale h, for rewards of any size."""
