"""Soft Actor-Critic: a stochastic policy that is rewarded for its entropy, and twin critics.

    act          a ~ π(s), tanh of a Gaussian; evaluations take tanh of the Gaussian's mean
    each update  a', log π(a'|s') ~ π(s')
                 y = r + γ (min_i Q'_i(s', a') - α log π(a'|s'))           γ = 0 where the episode terminated
                 critics:      minimize   Σ_i mean (Q_i(s, a) - y)²
                 actor:        minimize   mean (α log π(ã|s) - min_i Q_i(s, ã)),   ã ~ π(s), reparameterized
                 temperature:  minimize   -log α · mean (log π(ã|s) + H̄)                H̄ = -scale · (size of a)
                 critics' targets: Q' ← τ Q + (1 - τ) Q'

The facts that define SAC, each with a test:

- The next action comes from the *current* policy, which has no target network.
- The target contains the action's log-probability, corrected for tanh, unless the episode terminated.
- The critics' target and the actor's loss use the minimum of both critics.
- The actor's gradient goes through the sampled action.
- The temperature falls if the policy's entropy is above H̄. The temperature's loss updates only the temperature.

n-step returns contain no entropies of the intermediate steps, as in Stable-Baselines3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from array_api_compat import array_namespace

from duetto.algorithms.actor_critic import ActorCritic, categorical_loss, squared_loss
from duetto.algorithms.base import Array, Batch, LossAndInfo, OptimizerSpec, Tree, Updater
from duetto.algorithms.exploration import PolicySampling
from duetto.algorithms.options import NonNegative, Option, OptionTable, Positive, Sizes, in_group
from duetto.functional.array_ops import check_same_shape, stop_gradient
from duetto.functional.distributions import SquashedGaussian
from duetto.functional.returns import bootstrap
from duetto.networks.heads import SquashedGaussianHead
from duetto.networks.spaces import Space
from duetto.networks.specs import AnyNetworkSpec, ParameterSpec


class ActionNoisePair(NamedTuple):
    """Standard normal noise (B, A) for the actions that an update samples in s (`now`) and in s' (`next`)."""

    now: Array
    next: Array


@dataclass(frozen=True)
class SAC(ActorCritic):
    """Soft Actor-Critic (Haarnoja et al., 2018, arXiv:1812.05905: twin critics, learned temperature)."""

    actor_learning_rate: Positive = 3e-4
    critic_learning_rate: Positive = 3e-4
    hidden: Sizes = (256, 256)
    learn_temperature: bool = True
    """Adapt α to keep the policy's entropy near the target, instead of keeping α constant."""
    temperature: Positive = 1.0
    """Initial α, the weight of the entropy relative to the reward."""
    temperature_learning_rate: Positive = 3e-4
    """Step size of the temperature's Adam."""
    target_entropy_scale: NonNegative = 1.0
    """The target entropy is minus this value times the action's size."""
    stochastic_evaluation: bool = False
    """In evaluations, sample actions instead of using the policy's mode."""

    option_table: ClassVar[OptionTable] = {
        **in_group("", "learn_temperature", "temperature"),
        "target_entropy_scale": Option(needs="learn_temperature"),
        "temperature_learning_rate": Option("optimizer", needs="learn_temperature"),
        **in_group("exploration", "stochastic_evaluation", rare=True),
    }

    # ------------------------------------------------------------------------------------------------ the equations
    def critic_loss(self, nets: Any, batch: Batch, noise: Array) -> LossAndInfo:
        """Return the mean squared soft TD error (Haarnoja et al., 2018, equations 5 and 6)."""
        xp = array_namespace(batch.reward)
        next_action, log_prob = nets.actor(batch.next_obs).sample_and_log_prob(noise)  # (B, A), (B,)
        next_q = nets.target_critic(batch.next_obs, next_action)  # (2, B)
        q = nets.critic(batch.obs, batch.action)  # (2, B)
        entropy_cost = xp.exp(nets.log_alpha) * log_prob
        if self.critic == "categorical":  # logits (2, B, num_atoms)
            return categorical_loss(batch, q, next_q, entropy_cost, self.value_range)
        lower_q = xp.min(next_q, axis=0)  # (B,), the lower of the two
        target = bootstrap(batch.reward, batch.discount, lower_q - entropy_cost)
        return squared_loss(batch, q, target)

    def actor_loss(self, nets: Any, batch: Batch, noise: Array) -> LossAndInfo:
        """Return α log π(a|s) - min Q(s, a) for new actions a, through which the gradient goes (equation 9)."""
        return self.loss_of_policy(nets, batch, nets.actor(batch.obs), noise)

    def loss_of_policy(self, nets: Any, batch: Batch, policy: SquashedGaussian, noise: Array) -> LossAndInfo:
        """Return the actor's loss. `policy` is the actor's distribution over actions (B, A) at `batch.obs`."""
        xp = array_namespace(batch.reward)
        action, log_prob = policy.sample_and_log_prob(noise)
        q = xp.min(self.q_values(nets.critic(batch.obs, action)), axis=0)
        check_same_shape(q=q, log_prob=log_prob)
        return batch.mean(xp.exp(nets.log_alpha) * log_prob - q), {"log_prob": log_prob}

    def temperature_loss(self, nets: Any, batch: Batch, actor: dict[str, Array]) -> LossAndInfo:
        """Return -log α (log π + H̄), as in the authors' code; equation 18 has α instead of log α.

        `actor` has the metrics of the actor's loss.
        """
        xp = array_namespace(batch.reward)
        target = -self.target_entropy_scale * batch.action.shape[-1]
        loss = -nets.log_alpha * stop_gradient(batch.mean(actor["log_prob"]) + target)
        return loss, {"temperature": xp.exp(nets.log_alpha)}

    def update(self, learner: Updater, batch: Batch, noise: ActionNoisePair, phase: int) -> None:
        """Update the critics; in phase 0, actor and temperature; then the critics' targets."""
        learner.minimize("critic", self.critic_loss, batch, noise.next)
        if phase == 0:
            actor = learner.minimize("actor", self.actor_loss, batch, noise.now)
            if self.learn_temperature:
                learner.minimize("log_alpha", self.temperature_loss, batch, actor)
        self.track_targets(learner)

    def draw(self, random: np.random.Generator, batch: Batch) -> ActionNoisePair:
        """Draw standard normal noise for the actions sampled in s and in s'."""
        return ActionNoisePair(
            *(random.standard_normal(batch.action.shape, dtype=np.float32) for _ in ActionNoisePair._fields)
        )

    # ------------------------------------------------------------------------------------------------ acting
    def act(self, nets: Any, obs: Tree, noise: Array | None) -> Array:
        """Return samples of π(s), or the mode of π(s) if `noise` is None."""
        policy = nets.actor(obs)
        return policy.mode() if noise is None else policy.sample(noise)

    def explorer(self) -> PolicySampling:
        """Return exploration by sampling the policy."""
        return PolicySampling(self.stochastic_evaluation)

    # -------------------------------------------------------------------------------------------------------- specs
    def networks(self, observation: Space, action: Space) -> dict[str, AnyNetworkSpec]:
        """Return the specs of actor and critics, and of the temperature's logarithm."""
        return super().networks(observation, action) | {
            "log_alpha": ParameterSpec(initial=float(np.log(self.temperature)))
        }

    def policy(self, size: int) -> SquashedGaussianHead:
        """Return the actor's head, tanh of a Gaussian."""
        return SquashedGaussianHead(size, self.hidden, self.activation, self.network)

    def critics(self) -> int:
        """Return the number of critics."""
        return 2

    def optimizers(self) -> dict[str, OptimizerSpec]:
        """Return Adam for each network, and for the temperature if it is learned."""
        temperature = {"log_alpha": self.optimizer(self.temperature_learning_rate)} if self.learn_temperature else {}
        return super().optimizers() | temperature

    def targets(self) -> dict[str, str]:
        """Return only the critics' target network, mapped to the critics."""
        return {"target_critic": "critic"}
