"""Recurrent Replay Distributed DQN: DQN with a memory of the episode, learned from sequences.

    act          as DQN; the state (h, c), the previous action and the previous reward go along with each environment
    sequence     burn_in + unroll steps of one episode, with the state that its first step was taken with
    each update  a batch of sequences by priority; both networks run through each, the first `burn_in` steps only to
                 bring the state up to date; then DQN's loss at every step, on R2D2's value scale h
    priority     η max_t |δ_t| + (1 - η) mean_t |δ_t|, of what was learned from

The facts that make it R2D2: stored states and burn-in, without gradient, for the online and the target network alike;
the argmax comes from the online network with its own state, the value from the target network with its own; n-step
targets stop at the episode's end and use shorter windows at a sequence's end, so no step is lost; rewards are not
clipped, values rescaled instead; each environment explores with its own ε; the end of a life is no end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from duetto.algorithms.base import Count, CountOrZero, Fraction, NonNegative, Positive, Within
from duetto.algorithms.dqn import DQN


@dataclass(frozen=True)
class R2D2(DQN):
    """Recurrent Replay Distributed DQN (Kapturowski et al., 2019, openreview.net/forum?id=r1lyTjAqYX).

    Its maths is DQN's: the network carries a state, and batches are sequences. Only the defaults differ.
    """

    discount: Fraction = 0.997
    """γ: how much a reward one step later counts."""
    batch_size: Count = 64
    """Sequences per update."""
    n_step: Count = 5
    """Rewards summed before bootstrapping; shorter where an episode or a sequence ends."""
    train_every: Count = 4
    """Steps between two phases of learning."""
    learning_starts: CountOrZero = 5_000
    """Steps before the first update."""
    prioritized: bool = True
    """Sample in proportion to the TD error instead of uniformly."""
    priority_exponent: NonNegative = 0.9
    """α: 0 samples uniformly, 1 in full proportion to the priority."""
    importance_exponent: Fraction = 0.6
    """β: importance weights correct the sampling bias; 0 turns them off."""
    importance_anneal_samples: CountOrZero = 0
    """Sampled batches over which β rises to 1; 0 keeps it constant."""
    adam_epsilon: Positive = 1e-3
    """Adam's ε."""
    max_grad_norm: NonNegative = 40.0
    """Global L2 norm that the gradient is clipped to; 0 turns clipping off."""
    target_period: Count = 2_500
    """Updates between two moves of the target network."""
    huber_delta: NonNegative = 0.0
    """Errors beyond this count linearly; 0 squares all."""
    rescale_values: bool = True
    """Learn values on R2D2's scale h, for rewards of any size."""
    exploration: Literal["linear", "exponential", "ladder"] = "ladder"
    """ε falls linearly, or exponentially, or each environment keeps its own (Ape-X)."""
    exploration_start: Fraction = 0.4
    """ε at the start; of a ladder, that of its first rung."""
    hidden: Annotated[tuple[int, ...], Within(1)] = ()
    """Units of hidden layers before the recurrent ones."""
    head_hidden: Annotated[tuple[int, ...], Within(1)] = (512,)
    """Units of further hidden layers, of each of a dueling network's two streams."""
    recurrent: Literal["none", "lstm", "gru"] = "lstm"
    """Layers with a memory of the episode, for what one observation does not show."""
    recurrent_size: Count = 512
    """Their units."""
    burn_in: CountOrZero = 40
    """Steps at the beginning of a sequence that only warm the memory up."""
    unroll: Count = 40
    """Steps of a sequence that are learned from."""
    overlap: CountOrZero = 40
    """Steps that a sequence shares with the next."""
