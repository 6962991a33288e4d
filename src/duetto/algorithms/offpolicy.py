"""What every algorithm that learns from a replay memory has in common: when it learns, and from what.

`Replayed` is all that a memory needs to know; `OffPolicy` adds what only algorithms that learn values read.

With `recurrent` layers it learns from sequences of steps instead of single ones, and the same losses serve both: arrays
are (B, L) instead of (B,), and a batch knows how to take its means.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from duetto.algorithms.base import (
    Algorithm,
    Count,
    CountOrZero,
    Fraction,
    NonNegative,
    Prioritization,
    ReplaySpec,
    SequenceSpec,
)
from duetto.algorithms.searching import DOUBLING, Around, Search
from duetto.errors import UsageError
from duetto.functional.rescaling import SeenReward, seen_reward
from duetto.networks.spaces import Space
from duetto.networks.specs import Recurrent


class Returns(NamedTuple):
    """How a memory sums rewards into what is learned from."""

    discount: float  # γ
    n_step: int
    ignore_termination: bool  # bootstrap as if no episode ever terminated


@dataclass(frozen=True)
class Replayed(Algorithm):
    """Hyper-parameters of every algorithm that learns from a replay memory. Steps are agent decisions."""

    batch_size: Count = 256
    """Transitions per update."""
    replay_capacity: Count = 1_000_000
    """Transitions that the memory holds; the oldest is overwritten."""
    compress_images: bool = False
    """Keep images compressed (lossless): 3 % of the memory for Pong, but slower to read; checkpoints unpack them."""
    replacement: bool = True
    """Sample a batch with replacement."""
    learning_starts: CountOrZero = 0
    """Steps before the first update."""
    train_every: Count = 1
    """Steps between two phases of learning."""
    gradient_steps: Count = 1
    """Updates per phase of learning."""
    train_at_episode_end: bool = False
    """Save updates up until an episode ends, instead of learning while it runs."""
    prioritized: bool = False
    """Sample in proportion to the TD error instead of uniformly."""
    priority_exponent: NonNegative = 0.6
    """α: 0 samples uniformly, 1 in full proportion to the priority."""
    priority_epsilon: NonNegative = 1e-5
    """Added to every priority."""
    importance_exponent: Fraction = 0.4
    """β at the start: importance weights correct the sampling bias; 0 turns them off."""
    importance_anneal_samples: CountOrZero = 100_000
    """Sampled batches over which β rises to 1; 0 keeps it constant."""

    recurrent: Literal["none", "lstm", "gru"] = "none"
    """Layers with a memory of the episode, for what one observation does not show."""
    recurrent_size: Count = 128
    """Their units."""
    recurrent_layers: Count = 1
    """Their number."""
    burn_in: CountOrZero = 0
    """Steps at the beginning of a sequence that only warm the memory up."""
    unroll: Count = 20
    """Steps of a sequence that are learned from."""
    overlap: CountOrZero = 10
    """Steps that a sequence shares with the next."""
    stored_carry: bool = True
    """Begin a sequence with the state that it was collected with, instead of with zeros."""
    learn_from_start: bool = True
    """Learn from an episode's first steps too: there zeros are the true state, and no burn-in is needed."""
    priority_mix: Fraction = 0.9
    """η: a sequence's priority is η times its largest TD error and 1 - η times its mean one."""
    previous_reward: SeenReward = "tanh"
    """How recurrent layers see the previous reward."""

    tuned: ClassVar[dict[str, Search | None]] = {
        "batch_size": Around(4, step=DOUBLING),
        # What costs memory or time, what says how a memory works, and what only counts with an option that is off.
        **dict.fromkeys(("replay_capacity", "compress_images", "replacement", "learning_starts", "train_every")),
        **dict.fromkeys(("gradient_steps", "train_at_episode_end", "prioritized", "priority_exponent")),
        **dict.fromkeys(("priority_epsilon", "importance_exponent", "importance_anneal_samples", "priority_mix")),
        **dict.fromkeys(("recurrent", "recurrent_size", "recurrent_layers", "burn_in", "unroll", "overlap")),
        **dict.fromkeys(("stored_carry", "learn_from_start", "previous_reward")),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.overlap >= self.burn_in + self.unroll:
            raise UsageError(
                f"overlap is {self.overlap}; it must be below burn_in + unroll, {self.burn_in + self.unroll}: a "
                "sequence that begins where the last one began holds nothing new."
            )
        for name, value in (("train_at_episode_end", True), ("replacement", False)):
            if self.recurrent != "none" and getattr(self, name) is value:
                raise UsageError(
                    f"{name} = {value} is for single steps; recurrent layers learn from sequences. Leave it."
                )

    def memory(self) -> ReplaySpec | SequenceSpec:
        """A replay memory of steps or of sequences, prioritised if asked for."""
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
            "compress": self.compress_images,
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

    def returns(self) -> Returns:
        """How rewards are summed: here one by one as they are, since nothing is learned from them."""
        return Returns(discount=1.0, n_step=1, ignore_termination=False)

    def recurrence(self, action: Space) -> Recurrent | None:
        """The recurrent layers of each network; None for none."""
        if self.recurrent == "none":
            return None
        shape = (self.recurrent, self.recurrent_size, self.recurrent_layers)
        return Recurrent(*shape, action, self.burn_in, self.learn_from_start)

    def seen_reward(self, reward: np.ndarray) -> np.ndarray:
        """See `previous_reward`."""
        return seen_reward(self.previous_reward, reward)


@dataclass(frozen=True)
class OffPolicy(Replayed):
    """Hyper-parameters of every algorithm that learns values from a replay memory."""

    discount: Fraction = 0.99
    """γ: how much a reward one step later counts."""
    n_step: Count = 1
    """Rewards summed before bootstrapping; shorter where an episode ends."""
    ignore_termination: bool = False
    """Bootstrap as if no episode ever terminated (DI-engine's ignore_done)."""

    tuned: ClassVar[dict[str, Search | None]] = {"ignore_termination": None}

    def returns(self) -> Returns:
        """Sums of `n_step` discounted rewards."""
        return Returns(self.discount, self.n_step, self.ignore_termination)
