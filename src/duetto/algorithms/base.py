"""What an algorithm says about itself, in data: the batch it learns from, its networks, its memory, how it acts.

An algorithm is a frozen dataclass. Its fields are the hyper-parameters (and so the command line's options, the Python
API and the record in `config.yaml`); its methods are the equations, pure functions of arrays of either framework.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

Array = Any  # an array of NumPy, PyTorch or JAX
Tree = Any  # an Array, or for Dict observations a dict of them


class Batch(NamedTuple):
    """B transitions to learn from. The memory owns time: γ's power and an episode's end are in `discount` already."""

    obs: Tree  # (B, ...)
    action: Array  # (B, action size), in [-1, 1]
    reward: Array  # (B,), the sum of up to n discounted rewards
    discount: Array  # (B,), γ^n' where the future counts, 0 where the episode terminated
    next_obs: Tree  # (B, ...), the observation that `discount` looks ahead from
    weight: Array  # (B,), importance weights; 1 where the memory samples uniformly


@dataclass(frozen=True)
class Prioritization:
    """Proportional prioritised replay (Schaul et al., 2016, arXiv:1511.05952, section 3.3)."""

    exponent: float  # α in P(i) = p_i^α / Σ p^α
    importance_exponent: float  # β of the importance weights at the start; 0 turns them off
    importance_anneal_samples: int  # β rises linearly to 1 over this many sampled batches; 0 keeps it constant
    epsilon: float  # added to every |δ|, so that nothing has priority 0


@dataclass(frozen=True)
class ReplaySpec:
    """Which replay memory an algorithm wants, and when it learns from it. Steps are agent decisions of all environments."""

    capacity: int  # transitions
    batch_size: int
    discount: float  # γ
    n_step: int
    ignore_termination: bool  # bootstrap as if no episode ever terminated
    learning_starts: int  # no batch before this many steps
    train_every: int  # steps between two phases of learning
    gradient_steps: int  # batches in each phase
    train_at_episode_end: bool  # save the batches up until an episode ends
    replacement: bool  # sample with replacement
    prioritization: Prioritization | None
