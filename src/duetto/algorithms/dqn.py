"""Deep Q-network, with its extensions: double, dueling and n-step learning, priorities, rescaled values.

    act          with probability ε a random action, else argmax_a Q(s, a)
    each update  a batch (s, a, R, γ, s') from the memory: R sums n rewards, γ = 0 where the episode terminated
                 a* = argmax_a Q(s', a)                 the online network selects (double), the target network values
                 y = h(R + γ h⁻¹(Q'(s', a*)))           h rescales values, or is the identity
                 one step down    mean w ℓ(Q(s, a) - y)          ℓ: Huber's loss, or the square
    each k-th    Q' ← Q, or at each a little of it

The facts that make it (double) DQN: the greedy action of the *online* network is valued by the *target* network; the
target network is constant between copies; ε is drawn for every environment and step; truncated episodes bootstrap.
Where an environment forbids actions, random ones, the argmax and so a* are among the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from array_api_compat import array_namespace

from duetto.algorithms.base import (
    PRIORITY,
    Array,
    Batch,
    Count,
    Fraction,
    NonNegative,
    Positive,
    SequenceBatch,
    Tree,
    Updater,
)
from duetto.algorithms.off_policy import OffPolicy
from duetto.algorithms.options import OptionTable, in_group
from duetto.algorithms.value_based import ValueBased
from duetto.functional.array_ops import check_same_shape
from duetto.functional.q_values import huber, value_of_action
from duetto.functional.rescaling import rescale, unrescale
from duetto.functional.targets import bootstrap


@dataclass(frozen=True)
class DQN(ValueBased, OffPolicy):
    """Deep Q-network (Mnih et al., 2015) with double (arXiv:1509.06461), dueling (1511.06581) and n-step learning."""

    tau: Fraction = 1.0
    """Step of the target network towards the online one; 1 copies."""
    target_period: Count = 1_000
    """Updates between two updates of the target network."""
    double: bool = True
    """Select the target's action with the online network."""
    huber_delta: NonNegative = 1.0
    """Errors above this have a linear loss; 0 for the squared loss."""
    rescale_values: bool = False
    """Learn values on R2D2's scale h, for rewards of any size."""
    rescale_epsilon: Positive = 1e-3
    """ε of h."""

    option_table: ClassVar[OptionTable] = {
        **in_group("", "huber_delta", "rescale_values"),
        **in_group("", "rescale_epsilon", needs="rescale_values", rare=True),
    }

    # ------------------------------------------------------------------------------------------------ the equations
    def loss(self, nets: Any, batch: Batch | SequenceBatch) -> tuple[Array, dict[str, Array]]:
        """Loss of the TD error (van Hasselt et al., 2016), for transitions (B,) and sequences (B, L)."""
        xp = array_namespace(batch.reward)
        q = value_of_action(nets.q(batch.obs), batch.action)
        target = self.target(nets, batch.reward, batch.discount, batch.next_obs)
        check_same_shape(q=q, target=target)
        error = q - target
        info = {"q": q, "target": target, PRIORITY: xp.abs(error)}
        return batch.weighted_mean(huber(error, self.huber_delta)), info

    def target(self, nets: Any, reward: Array, discount: Array, next_obs: Tree) -> Array:
        """y = h(R + γ h⁻¹(Q'(s', a*))), in the shape of the reward."""
        xp = array_namespace(reward)
        next_q = nets.target_q(next_obs)
        best = xp.argmax(nets.q(next_obs) if self.double else next_q, axis=-1)
        next_value = value_of_action(next_q, best)
        return self.look_ahead(reward, discount, next_value)

    def look_ahead(self, reward: Array, discount: Array, next_value: Array) -> Array:
        """y = h(R + γ h⁻¹(V)) from the value V after the rewards; h is the identity unless `rescale_values`."""
        if not self.rescale_values:
            return bootstrap(reward, discount, next_value)
        returns = bootstrap(reward, discount, unrescale(next_value, self.rescale_epsilon))
        return rescale(returns, self.rescale_epsilon)

    # ------------------------------------------------------------------------------------------------ updates
    def phase(self, update: int) -> int:
        """Return 0 for updates of the target network, every `target_period` updates, else 1."""
        return 0 if update % self.target_period == 0 else 1

    def update(self, learner: Updater, batch: Batch | SequenceBatch, noise: Any, phase: int) -> None:
        """Make one step of Q; in phase 0 the target network follows."""
        learner.minimize("q", self.loss, batch)
        if phase == 0:
            learner.track("target_q", "q", self.tau)

    def targets(self) -> dict[str, str]:
        """Return the target network."""
        return {"target_q": "q"}
