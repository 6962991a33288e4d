"""CrossQ: soft actor-critic with batch normalization instead of target networks.

    each update      a', log π(a'|s') ~ π(s')
                     [Q_i(s, a); Q_i(s', a')] = Q_i([s; s'], [a; a'])          both halves are normalized as one batch
                     y = r + γ (min_i Q_i(s', a') - α log π(a'|s')), no gradient   γ = 0 where the episode terminated
                     critics:      minimize   Σ_i mean (Q_i(s, a) - y)²
    each d-th        actor:        minimize   mean (α log π(ã|s) - min_i Q_i(s, ã)),   ã ~ π(s), reparameterized
                     temperature:  minimize   -log α · mean (log π(ã|s) + H̄)

The facts that define CrossQ, each with a test:

- There are no target networks.
- (s, a) and (s', a') go through the critics as one batch, so batch normalization uses the statistics of both.
- No gradient goes through y.
- Only the critics' updates change the critics' running statistics. The actor's loss uses these statistics.
- For the next action, the policy normalizes by running statistics, which only the actor's updates change.
- Actor and temperature are updated after every d (`policy_delay`) updates of the critics.

After 100,000 updates of a network, its batch normalization becomes batch renormalization (`networks/batch_norm.py`), as
in the authors' code. With recurrent layers, statistics include every position of every sequence, also burn-in and
padding.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from array_api_compat import array_namespace

from duetto.algorithms.actor_critic import categorical_loss, squared_loss
from duetto.algorithms.base import Array, Batch, LossAndInfo, OptimizerSpec
from duetto.algorithms.options import Bounds, Count, Option, OptionTable, Positive
from duetto.algorithms.sac import SAC
from duetto.functional.array_ops import concat
from duetto.functional.returns import bootstrap
from duetto.networks.layers import AllBlocks


@dataclass(frozen=True)
class CrossQ(SAC):
    """CrossQ (Bhatt et al., 2024, arXiv:1902.05605: no target networks, batch normalization over s and s' together)."""

    actor_learning_rate: Positive = 1e-3
    critic_learning_rate: Positive = 1e-3
    temperature_learning_rate: Positive = 1e-3
    adam_beta1: Annotated[float, Bounds(0.0, 0.999)] = 0.5
    """β1 of all optimizers; the usual value is 0.9."""
    policy_delay: Count = 3
    """Critic updates per update of actor and temperature."""
    tau: ClassVar[float] = 0.0  # pyright: ignore[reportIncompatibleVariableOverride]  # not an option: no targets
    network: AllBlocks = "batch_renorm"  # pyright: ignore[reportIncompatibleVariableOverride]  # two more kinds
    """Hidden layers; without batch normalization or renormalization, CrossQ is SAC without target networks."""

    option_table: ClassVar[OptionTable] = {"adam_beta1": Option("optimizer", rare=True)}

    # With ReLU, the gradient of some biases is only rounding error, which Adam scales to full steps.
    small: ClassVar[dict[str, Any]] = {"activation": "tanh"}

    # ------------------------------------------------------------------------------------------------ the equations
    def critic_loss(self, nets: Any, batch: Batch, noise: Array) -> LossAndInfo:
        """Return the mean squared soft TD error. One pass computes Q(s, a) and Q(s', a') (section 3.2)."""
        xp, size = array_namespace(batch.reward), len(batch.reward)
        next_action, log_prob = nets.actor(batch.next_obs).sample_and_log_prob(noise)  # (B, A), (B,)
        both = nets.critic(concat(batch.obs, batch.next_obs), concat(batch.action, next_action), train=True)  # (2, 2B)
        q, next_q = both[:, :size], both[:, size:]  # (2, B) each
        entropy_cost = xp.exp(nets.log_alpha) * log_prob
        if self.critic == "categorical":  # logits (2, B, num_atoms)
            return categorical_loss(batch, q, next_q, entropy_cost, self.value_range)
        target = bootstrap(batch.reward, batch.discount, xp.min(next_q, axis=0) - entropy_cost)
        return squared_loss(batch, q, target)

    def actor_loss(self, nets: Any, batch: Batch, noise: Array) -> LossAndInfo:
        """Return mean(α log π(a|s) - min Q(s, a)) for new actions a; the critics use running statistics."""
        return self.loss_of_policy(nets, batch, nets.actor(batch.obs, train=True), noise)

    def phase(self, update: int) -> int:
        """Return 0 for every `policy_delay`-th update, which also updates the actor; else 1."""
        return 0 if update % self.policy_delay == 0 else 1

    def optimizer(self, learning_rate: float, weight_decay: float = 0.0) -> OptimizerSpec:
        """Return Adam with `adam_beta1`."""
        return replace(super().optimizer(learning_rate, weight_decay), beta1=self.adam_beta1)

    def targets(self) -> dict[str, str]:
        """Return no target networks."""
        return {}
