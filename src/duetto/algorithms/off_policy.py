"""Options of algorithms with a replay buffer.

`ReplayAlgorithm` has the buffer's options, `OffPolicy` those of algorithms that learn values, and
`LearnsFromDemonstrations` those of demonstrations.

With `recurrent` layers batches are sequences instead of transitions. The same losses serve both: arrays are (B, L)
instead of (B,), and the batch computes the means.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from duetto.algorithms.base import (
    Algorithm,
    Count,
    CountOrZero,
    DemonstrationSpec,
    Fraction,
    NonNegative,
    Prioritization,
    ReplaySpec,
    SequenceSpec,
)
from duetto.algorithms.options import Option, OptionTable, in_group
from duetto.errors import UsageError
from duetto.functional.rescaling import SeenReward, seen_reward
from duetto.networks.layers import RecurrentSpec
from duetto.networks.spaces import Space


class ReturnSpec(NamedTuple):
    """How a buffer sums rewards."""

    discount: float  # γ
    n_step: int
    ignore_termination: bool  # bootstrap as if no episode terminated


@dataclass(frozen=True)
class ReplayAlgorithm(Algorithm):
    """Options of every algorithm with a replay buffer. Steps are agent decisions."""

    batch_size: Count = 256
    """Transitions per update."""
    replay_capacity: Count = 1_000_000
    """Transitions in the replay buffer; the oldest ones are overwritten."""
    replacement: bool = True
    """Sample a batch with replacement."""
    learning_starts: CountOrZero = 0
    """Steps before the first update."""
    train_every: Count = 1
    """Steps between two phases of learning."""
    gradient_steps: Count = 1
    """Updates per phase of learning."""
    train_at_episode_end: bool = False
    """Delay updates until an episode ends."""
    prioritized: bool = False
    """Sample in proportion to the TD error instead of uniformly."""
    priority_exponent: NonNegative = 0.6
    """α: 0 samples uniformly, 1 in proportion to the priority."""
    priority_epsilon: NonNegative = 1e-5
    """Added to every priority."""
    importance_exponent: Fraction = 0.4
    """Initial β: importance weights correct the sampling bias; 0 for none."""
    importance_anneal_samples: CountOrZero = 100_000
    """Sampled batches over which β rises to 1; 0 for a constant β."""

    recurrent: Literal["none", "lstm", "gru"] = "none"
    """Recurrent layers, for tasks in which one observation does not show the state."""
    recurrent_size: Count = 128
    """Units of the recurrent layers."""
    recurrent_layers: Count = 1
    """Number of recurrent layers."""
    burn_in: CountOrZero = 0
    """Steps at the start of a sequence that only warm the hidden state up."""
    unroll: Count = 20
    """Steps of a sequence in the loss."""
    overlap: CountOrZero = 10
    """Steps that a sequence shares with the next."""
    stored_carry: bool = True
    """Start a sequence from the hidden state at collection instead of zeros."""
    learn_from_start: bool = True
    """No burn-in at the start of an episode, where zeros are the true hidden state."""
    priority_mix: Fraction = 0.9
    """η: a sequence's priority is η times its largest plus 1 - η times its mean TD error."""
    previous_reward: SeenReward = "tanh"
    """How recurrent layers see the previous reward."""

    option_table: ClassVar[OptionTable] = {
        "batch_size": Option("replay", search={"factor": 4, "step": "doubling"}),
        **in_group("replay", "replay_capacity", "learning_starts", "train_every", "gradient_steps", "prioritized"),
        **in_group("replay", "replacement", "train_at_episode_end", rare=True),
        **in_group("replay", "priority_exponent", "importance_exponent", needs="prioritized"),
        **in_group("replay", "priority_epsilon", "importance_anneal_samples", needs="prioritized", rare=True),
        **in_group("recurrence", "recurrent"),
        **in_group("recurrence", "recurrent_size", "burn_in", "unroll", "overlap", needs="recurrent"),
        **in_group("recurrence", "recurrent_layers", "stored_carry", "learn_from_start", needs="recurrent", rare=True),
        **in_group("recurrence", "priority_mix", "previous_reward", needs="recurrent", rare=True),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.overlap >= self.burn_in + self.unroll:
            raise UsageError(
                f"overlap is {self.overlap}; it must be less than burn_in + unroll, {self.burn_in + self.unroll}."
            )
        for name, value in (("train_at_episode_end", True), ("replacement", False)):
            if self.recurrent != "none" and getattr(self, name) is value:
                raise UsageError(
                    f"{name} = {value} is for transitions; recurrent layers learn from sequences. Leave it out."
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
            **self.returns()._asdict(),
        }
        if self.recurrent == "none":
            return ReplaySpec(**shared, train_at_episode_end=self.train_at_episode_end, replacement=self.replacement)
        return SequenceSpec(
            **shared,
            burn_in=self.burn_in,
            unroll=self.unroll,
            overlap=self.overlap,
            stored_carry=self.stored_carry,
            learn_from_start=self.learn_from_start,
            priority_mix=self.priority_mix,
        )

    def returns(self) -> ReturnSpec:
        """Return how rewards are summed: not at all, since no values are learned."""
        return ReturnSpec(discount=1.0, n_step=1, ignore_termination=False)

    def recurrence(self, action: Space) -> RecurrentSpec | None:
        """Return the recurrent layers of each network; None without."""
        if self.recurrent == "none":
            return None
        shape = (self.recurrent, self.recurrent_size, self.recurrent_layers)
        return RecurrentSpec(*shape, action, self.burn_in, self.learn_from_start)

    def seen_reward(self, reward: np.ndarray) -> np.ndarray:
        """See `previous_reward`."""
        return seen_reward(self.previous_reward, reward)


@dataclass(frozen=True)
class OffPolicy(ReplayAlgorithm):
    """Options of every algorithm that learns values from a replay buffer."""

    discount: Fraction = 0.99
    """γ: the weight of a reward one step later."""
    n_step: Count = 1
    """Rewards summed before bootstrapping; shorter where an episode ends."""
    ignore_termination: bool = False
    """Bootstrap as if no episode terminated (DI-engine's ignore_done)."""

    option_table: ClassVar[OptionTable] = {
        "n_step": Option("replay"),
        "ignore_termination": Option("replay", rare=True, search=None),
    }

    def returns(self) -> ReturnSpec:
        """Return sums of `n_step` discounted rewards."""
        return ReturnSpec(self.discount, self.n_step, self.ignore_termination)


@dataclass(frozen=True)
class LearnsFromDemonstrations(ReplayAlgorithm):
    """Options of every algorithm that learns from demonstrations."""

    demonstrations: str = ""
    """Folder of the demonstrations, from `duetto demos record`."""
    demonstration_share: Fraction = 0.25
    """ρ: each item of a batch is a demonstration with this probability, also far below 1 / batch_size."""
    share_by_priority: bool = False
    """Sample demonstrations and the agent's experience by priority, instead of a fixed share."""
    demonstration_priority_epsilon: NonNegative = 0.0
    """Added to every demonstration's priority instead of priority_epsilon; 0 for the same."""
    pretraining_updates: CountOrZero = 0
    """Updates from demonstrations before the first step."""

    alternatives: ClassVar[dict[str, Any]] = {"replacement": None, "train_at_episode_end": None}
    option_table: ClassVar[OptionTable] = {
        "demonstrations": Option("demonstrations"),
        "demonstration_share": Option("demonstrations", search={"factor": 4}),
        "pretraining_updates": Option("demonstrations"),
        **in_group("demonstrations", "share_by_priority", "demonstration_priority_epsilon", rare=True),
    }

    def memory(self) -> ReplaySpec | SequenceSpec:
        """Return the spec of the replay buffer with demonstrations."""
        spec = DemonstrationSpec(
            self.demonstration_share,
            self.share_by_priority,
            self.demonstration_priority_epsilon,
            self.pretraining_updates,
        )
        return dataclasses.replace(super().memory(), demonstrations=spec)

    def demonstration_folder(self) -> str:
        """See `demonstrations`."""
        if not self.demonstrations:
            raise UsageError(
                f"{self.name()} learns from demonstrations. Give --demonstrations FOLDER (duetto demos record)."
            )
        return self.demonstrations
