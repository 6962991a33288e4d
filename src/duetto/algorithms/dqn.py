"""Deep Q-network, with what was found to help it: double, dueling and n-step learning, priorities, rescaled values.

    act          with probability ε a random action, else argmax_a Q(s, a)
    each update  a batch (s, a, R, γ, s') from the memory: R sums n rewards, γ = 0 where the episode terminated
                 a* = argmax_a Q(s', a)                 the online network chooses (double), the target network judges
                 y = h(R + γ h⁻¹(Q'(s', a*)))           h rescales values, or is the identity
                 one step down    mean w ℓ(Q(s, a) - y)          ℓ: Huber's loss, or the square
    each k-th    Q' ← Q, or at each a little of it

The facts that make it (double) DQN: the greedy action of the *online* network is valued by the *target* network; the
target network stands still between copies; ε is drawn for every environment and step; truncated episodes bootstrap.
Where an environment forbids actions, random ones, the argmax and so a* are among the others.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from array_api_compat import array_namespace

from duetto.algorithms.base import (
    PRIORITY,
    Q_BEST,
    Q_TAKEN,
    Array,
    Batch,
    Count,
    Fraction,
    NonNegative,
    Positive,
    Prospect,
    ReplaySpec,
    SequenceBatch,
    SequenceSpec,
    Tree,
    Updater,
)
from duetto.algorithms.choices import ChoiceNetwork
from duetto.algorithms.offpolicy import OffPolicy
from duetto.algorithms.searching import Search
from duetto.errors import UsageError
from duetto.functional.checks import same_shape
from duetto.functional.rescaling import rescale, unrescale
from duetto.functional.targets import bootstrap
from duetto.functional.values import chosen, huber


@dataclass(frozen=True)
class DQN(ChoiceNetwork, OffPolicy):
    """Deep Q-network (Mnih et al., 2015) with double (arXiv:1509.06461), dueling (1511.06581) and n-step learning."""

    tau: Fraction = 1.0
    """How far the target network moves towards the online one; 1 copies."""
    target_period: Count = 1_000
    """Updates between two moves of the target network."""
    double: bool = True
    """Let the online network choose the action that the target network values."""
    huber_delta: NonNegative = 1.0
    """Errors beyond this count linearly; 0 squares all."""
    rescale_values: bool = False
    """Learn values on R2D2's scale h, for rewards of any size."""
    rescale_epsilon: Positive = 1e-3
    """ε of h."""
    initial_priority: Literal["largest", "actor"] = "largest"
    """Priority of what is new: the largest so far, or by the action values that it was acted with (Ape-X, R2D2)."""

    tuned: ClassVar[dict[str, Search | None]] = dict.fromkeys(
        ("huber_delta", "rescale_values", "rescale_epsilon", "initial_priority")
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.initial_priority == "actor" and not self.prioritized:
            raise UsageError(
                "initial_priority is actor, but without prioritized nothing has a priority. Set prioritized, or leave "
                "initial_priority."
            )

    # ------------------------------------------------------------------------------------------------ the equations
    def loss(self, nets: Any, batch: Batch | SequenceBatch) -> tuple[Array, dict[str, Array]]:
        """The TD error's loss (van Hasselt et al., 2016), the same for steps (B,) and for sequences (B, L)."""
        xp = array_namespace(batch.reward)
        q = chosen(nets.q(batch.obs), batch.action)
        target = self.target(nets, batch.reward, batch.discount, batch.next_obs)
        same_shape(q=q, target=target)
        error = q - target
        info = {"q": q, "target": target, PRIORITY: xp.abs(error)}
        return batch.weighted_mean(huber(error, self.huber_delta)), info

    def target(self, nets: Any, reward: Array, discount: Array, next_obs: Tree) -> Array:
        """y = h(R + γ h⁻¹(Q'(s', a*))), in the shape of the reward."""
        xp = array_namespace(reward)
        next_q = nets.target_q(next_obs)
        best = xp.argmax(nets.q(next_obs) if self.double else next_q, axis=-1)
        next_value = chosen(next_q, best)
        return self.look_ahead(reward, discount, next_value)

    def look_ahead(self, reward: Array, discount: Array, next_value: Array) -> Array:
        """y = h(R + γ h⁻¹(V)) from the value V after the rewards; h is the identity unless `rescale_values`."""
        if not self.rescale_values:
            return bootstrap(reward, discount, next_value)
        returns = bootstrap(reward, discount, unrescale(next_value, self.rescale_epsilon))
        return rescale(returns, self.rescale_epsilon)

    # ------------------------------------------------------------------------------------------------ new items
    def collect(self, nets: Any, obs: Tree, noise: Array | None) -> tuple[Array, dict[str, Array]]:
        """Actions, with Q_TAKEN and Q_BEST for first priorities if `initial_priority` is "actor"."""
        if self.initial_priority == "largest":
            return super().collect(nets, obs, noise)
        q = nets.q(obs)
        action = self.choice(q, noise)
        return action, {Q_TAKEN: chosen(q, action), Q_BEST: array_namespace(q).max(q, axis=-1)}

    def unasked(self, num_envs: int) -> dict[str, np.ndarray]:
        """NaN under the names that `collect` returns: no network gave these values."""
        if self.initial_priority == "largest":
            return {}
        return {name: np.full(num_envs, np.nan, np.float32) for name in (Q_TAKEN, Q_BEST)}

    def initial_error(self, q: Array, prospect: Prospect, one_step: Prospect | None) -> Array:
        """|Q(s, a) - y| as an actor knows it, which has the online network alone: it both chooses and judges."""
        return array_namespace(q).abs(q - self.look_ahead(*prospect))

    def memory(self) -> ReplaySpec | SequenceSpec:
        """See `initial_priority`."""
        spec = super().memory()
        if self.initial_priority == "largest" or spec.prioritization is None:
            return spec
        judged = dataclasses.replace(spec.prioritization, initial=self.initial_error)
        return dataclasses.replace(spec, prioritization=judged)

    # ------------------------------------------------------------------------------------------------ updates
    def phase(self, update: int) -> int:
        """0 where the target network moves after the update, every `target_period` updates, else 1."""
        return 0 if update % self.target_period == 0 else 1

    def update(self, learner: Updater, batch: Batch | SequenceBatch, noise: Any, phase: int) -> None:
        """Make one step of Q; in phase 0 the target network follows."""
        learner.minimize("q", self.loss, batch)
        if phase == 0:
            learner.track("target_q", "q", self.tau)

    def targets(self) -> dict[str, str]:
        """The target network, which values the actions that `q` chooses."""
        return {"target_q": "q"}
