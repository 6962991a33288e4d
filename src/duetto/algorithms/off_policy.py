"""Options of algorithms with a replay buffer: its size and sampling, the schedule of updates, recurrent layers.

With recurrent layers, batches contain sequences instead of transitions, and arrays are (B, L) instead of (B,). The same
losses work for both, because the batch computes the means.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from duetto.algorithms.base import Algorithm, Prioritization, ReplaySpec, SequenceSpec
from duetto.algorithms.options import Count, CountOrZero, Fraction, NonNegative, Option, OptionTable, Positive, in_group
from duetto.errors import UsageError
from duetto.networks.layers import Recurrent, RecurrentSpec
from duetto.networks.preprocessing import SeenReward
from duetto.networks.spaces import Space


@dataclass(frozen=True)
class OffPolicy(Algorithm):
    """Options of every algorithm with a replay buffer; a step is one action in one environment."""

    batch_size: Count = 256
    """Transitions per update, or sequences if the network is recurrent."""
    replay_capacity: Count = 1_000_000
    """Transitions in the replay buffer; new transitions overwrite the oldest."""
    learning_starts: CountOrZero = 0
    """Steps before the first update."""
    train_every: Count = 1
    """Update the networks every N steps."""
    gradient_steps: Count = 1
    """Number of updates every `train_every` steps."""
    train_at_episode_end: bool = False
    """Delay updates until an episode ends."""
    prioritized: bool = False
    """Sample transitions with large TD errors more often."""
    priority_exponent: NonNegative = 0.6
    """α: 0 samples uniformly, 1 in proportion to the priority."""
    priority_epsilon: Positive = 1e-5
    """Added to every priority."""
    importance_exponent: Fraction = 0.4
    """Initial β of the importance weights, which correct the sampling bias; 0 for no weights."""
    importance_anneal_samples: CountOrZero = 100_000
    """Sampled batches over which β rises to 1; 0 for a constant β."""

    recurrent: Recurrent = "none"
    """Recurrent layers, for partial observability: tasks in which one observation does not show the state."""
    recurrent_size: Count = 128
    """Units of the recurrent layers."""
    recurrent_layers: Count = 1
    """Number of recurrent layers."""
    burn_in: CountOrZero = 0
    """Steps at the start of a sequence that only update the hidden state."""
    unroll: Count = 20
    """Steps of a sequence that are in the loss, after burn-in."""
    overlap: CountOrZero = 10
    """Steps that a sequence shares with the next."""
    stored_carry: bool = True
    """Start a sequence from the hidden state stored while acting, instead of zeros; critics always start from zeros."""
    learn_from_start: bool = True
    """No burn-in at the start of an episode, where zeros are the true hidden state."""
    priority_mix: Fraction = 0.9
    """η: a sequence's priority is η times its largest TD error plus (1 - η) times its mean TD error."""
    previous_reward: SeenReward = "tanh"
    """Transformation of the previous reward, an input of recurrent layers."""

    discount: Fraction = 0.99
    """γ: the weight of a reward one step later."""
    n_step: Count = 1
    """Rewards summed before bootstrapping; fewer at the end of an episode or of the replay buffer."""

    option_table: ClassVar[OptionTable] = {
        "batch_size": Option("replay", search={"factor": 4, "step": "doubling"}),
        **in_group("replay", "replay_capacity", "learning_starts", "train_every", "gradient_steps", "prioritized"),
        **in_group("replay", "train_at_episode_end", rare=True),
        **in_group("replay", "priority_exponent", "importance_exponent", needs="prioritized"),
        **in_group("replay", "priority_epsilon", "importance_anneal_samples", needs="prioritized", rare=True),
        **in_group("recurrence", "recurrent"),
        **in_group("recurrence", "recurrent_size", "burn_in", "unroll", "overlap", needs="recurrent"),
        **in_group("recurrence", "recurrent_layers", "stored_carry", "learn_from_start", needs="recurrent", rare=True),
        **in_group("recurrence", "priority_mix", "previous_reward", needs="recurrent", rare=True),
        "n_step": Option("replay"),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.burn_in <= self.overlap < self.burn_in + self.unroll:
            raise UsageError(
                f"overlap is {self.overlap}; it must be at least burn_in ({self.burn_in}), so that every step is "
                f"in a loss, and less than burn_in + unroll ({self.burn_in + self.unroll})."
            )
        if self.recurrent != "none" and self.train_at_episode_end:
            raise UsageError(
                "train_at_episode_end is for transitions; recurrent layers learn from sequences. Set it to false, or "
                "recurrent to none."
            )

    def memory(self) -> ReplaySpec | SequenceSpec:
        """Return the spec of the replay buffer, of transitions or of sequences."""
        priorities = Prioritization(
            self.priority_exponent, self.importance_exponent, self.importance_anneal_samples, self.priority_epsilon
        )
        shared: dict[str, Any] = {
            "capacity": self.replay_capacity,
            "batch_size": self.batch_size,
            "learning_starts": self.learning_starts,
            "train_every": self.train_every,
            "gradient_steps": self.gradient_steps,
            "prioritization": priorities if self.prioritized else None,
            "discount": self.discount,
            "n_step": self.n_step,
        }
        if self.recurrent == "none":
            return ReplaySpec(**shared, train_at_episode_end=self.train_at_episode_end)
        return SequenceSpec(
            **shared,
            burn_in=self.burn_in,
            unroll=self.unroll,
            overlap=self.overlap,
            stored_carry=self.stored_carry,
            learn_from_start=self.learn_from_start,
            priority_mix=self.priority_mix,
        )

    def recurrence(self, action: Space) -> RecurrentSpec | None:
        """Return the spec of each network's recurrent layers; None without recurrent layers."""
        if self.recurrent == "none":
            return None
        shape = (self.recurrent, self.recurrent_size, self.recurrent_layers)
        return RecurrentSpec(*shape, action, self.burn_in, self.learn_from_start)
