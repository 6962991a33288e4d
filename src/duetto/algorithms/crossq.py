"""CrossQ: soft actor-critic without target networks, with batch normalization in their place.

    each update      a', log π(a'|s') ~ π(s')
                     [Q_i(s, a); Q_i(s', a')] = Q_i([s; s'], [a; a'])          both halves are one batch to the norms
                     y = r + γ (min_i Q_i(s', a') - α log π(a'|s')), a number      γ = 0 where the episode terminated
                     critics:      one step down   Σ_i mean (Q_i(s, a) - y)²
    each d-th        actor:        one step down   mean (α log π(ã|s) - min_i Q_i(s, ã)),   ã ~ π(s) through the noise
                     temperature:  one step down   -log α · mean (log π(ã|s) + H̄)

The facts that make it CrossQ, each with a test: there are no targets; (s, a) and (s', a') go through the critics as one
batch, so that the norms see the mixture of both; no gradient goes through y; only these batches update the critics'
running statistics, and the actor's loss uses them; the next action comes from the policy in evaluation mode, whose
statistics are updated in its own updates; actor and temperature are updated after every d updates of the critics.

The norms are renormalized (`networks/batch_norm.py`) after 100,000 updates, as in the authors' code. With recurrent
layers every position of a sequence is a row to the norms, those of its burn-in and its padding too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from array_api_compat import array_namespace

from duetto.algorithms.actor_critic import categorical_loss
from duetto.algorithms.base import PRIORITY, Array, Batch, OptimizerSpec, Updater
from duetto.algorithms.option_bounds import Bounds, Count, Positive
from duetto.algorithms.options import Option, OptionTable
from duetto.algorithms.sac import SAC, ActionNoisePair
from duetto.functional.array_ops import check_same_shape, concat, stop_gradient
from duetto.functional.targets import bootstrap
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
    tau: ClassVar[float] = 0.0  # pyright: ignore[reportIncompatibleVariableOverride]  # no option: it has no targets
    network: AllBlocks = "batch_renorm"  # pyright: ignore[reportIncompatibleVariableOverride]  # two more
    """Hidden layers: with batch normalization, or batch renormalization; without either it is SAC without targets."""

    option_table: ClassVar[OptionTable] = {"adam_beta1": Option("optimizer", rare=True)}

    # With ReLU some biases have a gradient of rounding errors only, which Adam scales to whole steps.
    small: ClassVar[dict[str, Any]] = {"activation": "tanh"}
    alternatives: ClassVar[dict[str, Any]] = {
        "network": ("layer_norm", {}),  # renormalization starts late
        "critic_action_layer": (1, {"network": "layer_norm"}),
    }

    # ------------------------------------------------------------------------------------------------ the equations
    def critic_loss(self, nets: Any, batch: Batch, noise: Array) -> tuple[Array, dict[str, Array]]:
        """Mean squared soft TD errors of one pass over (s, a) and (s', a') (Bhatt et al., 2024, section 3.2)."""
        xp = array_namespace(batch.reward)
        next_action, log_prob = nets.actor(batch.next_obs).sample_and_log_prob(noise)  # (B, A), (B,)
        both = nets.critic(concat(batch.obs, batch.next_obs), concat(batch.action, next_action), train=True)  # (2, 2B)
        q, next_q = both[:, : len(batch.reward)], xp.min(both[:, len(batch.reward) :], axis=0)  # (2, B), (B,)
        target = bootstrap(batch.reward, batch.discount, next_q - xp.exp(nets.log_alpha) * log_prob)
        check_same_shape(q=q[0], target=target)
        error = q - stop_gradient(target)[None]
        return batch.weighted_mean(xp.sum(error**2, axis=0)), {
            "q": q,
            "target": target,
            PRIORITY: xp.mean(xp.abs(error), axis=0),
        }

    def distribution_loss(self, nets: Any, batch: Batch, noise: Array) -> tuple[Array, dict[str, Array]]:
        """Cross-entropy of categorical critics with the pass and the target of `critic_loss`."""
        xp, size = array_namespace(batch.reward), len(batch.reward)
        next_action, log_prob = nets.actor(batch.next_obs).sample_and_log_prob(noise)
        both = nets.critic(concat(batch.obs, batch.next_obs), concat(batch.action, next_action), train=True)
        entropy_cost = xp.exp(nets.log_alpha) * log_prob
        return categorical_loss(batch, both[:, :size], both[:, size:], entropy_cost, self.value_range)

    def actor_loss(self, nets: Any, batch: Batch, noise: Array) -> tuple[Array, dict[str, Array]]:
        """α log π(a|s) - min Q(s, a) of fresh actions, by the critics' running statistics."""
        xp = array_namespace(batch.reward)
        action, log_prob = nets.actor(batch.obs, train=True).sample_and_log_prob(noise)
        q = xp.min(self.q_values(nets.critic(batch.obs, action)), axis=0)
        check_same_shape(q=q, log_prob=log_prob)
        return batch.mean(xp.exp(nets.log_alpha) * log_prob - q), {"log_prob": log_prob}

    def update(self, learner: Updater, batch: Batch, noise: ActionNoisePair, phase: int) -> None:
        """Update the critics, and in phase 0 actor and temperature."""
        learner.minimize("critic", self.loss_of_critics(), batch, noise.next)
        if phase == 0:
            actor = learner.minimize("actor", self.actor_loss, batch, noise.now)
            if self.learn_temperature:
                learner.minimize("log_alpha", self.temperature_loss, batch, actor["log_prob"])

    def phase(self, update: int) -> int:
        """Return 0 for updates of the actor, every `policy_delay` updates, counted over the whole run."""
        return 0 if update % self.policy_delay == 0 else 1

    def optimizer(self, learning_rate: float, weight_decay: float = 0.0) -> OptimizerSpec:
        """Return Adam with `adam_beta1`."""
        return replace(super().optimizer(learning_rate, weight_decay), beta1=self.adam_beta1)

    def targets(self) -> dict[str, str]:
        """Return no target networks."""
        return {}
