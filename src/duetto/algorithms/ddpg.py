"""Deep Deterministic Policy Gradient.

    act          a = clip(μ(s) + scale · noise, -1, 1)
    each update  sample a batch (s, a, r, γ, s') from the buffer        γ = 0 where the episode terminated
                 y = r + γ Q'(s', μ'(s'))
                 critic: minimize    mean (Q(s, a) - y)²
                 actor:  minimize   -mean  Q(s, μ(s))                   with the critic just updated
                 targets: μ' ← τ μ + (1 - τ) μ',  Q' ← τ Q + (1 - τ) Q'

The facts that define DDPG:

- The actor is deterministic. It follows the critic's gradient with respect to the action.
- The actor's loss updates only the actor.
- Both networks have target networks, which move after every update.
- Truncated episodes bootstrap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from array_api_compat import array_namespace

from duetto.algorithms.actor_critic import ActorCritic, categorical_loss, squared_loss
from duetto.algorithms.base import Array, Batch, LossAndInfo, Tree, Updater
from duetto.algorithms.exploration import ActionNoise, Noise
from duetto.algorithms.options import NonNegative, Option, OptionTable, in_group
from duetto.functional.array_ops import check_same_shape
from duetto.functional.returns import bootstrap


@dataclass(frozen=True)
class DDPG(ActorCritic):
    """Deep Deterministic Policy Gradient (Lillicrap et al., 2016, arXiv:1509.02971)."""

    exploration: Noise = "gaussian"
    """Noise on the action: independent Gaussian, Ornstein-Uhlenbeck (ou), or none."""
    exploration_noise: NonNegative = 0.1
    """Std of Gaussian noise, or of the increments of ou, on actions in [-1, 1]."""
    exploration_noise_max: NonNegative = 0.0
    """If above 0, draw each episode's std uniformly from `exploration_noise` to this value (Gaussian noise only)."""
    exploration_final_scale: NonNegative = 1.0
    """Factor of the noise at the end of the run, reached linearly from 1."""
    ou_theta: NonNegative = 0.15
    """Rate at which Ornstein-Uhlenbeck noise returns to 0: x ← x - ou_theta x + σ N."""
    ou_reset: bool = True
    """Restart Ornstein-Uhlenbeck noise from 0 in each episode."""

    option_table: ClassVar[OptionTable] = {
        "exploration_noise": Option("exploration"),
        **in_group("exploration", "exploration", "exploration_final_scale"),
        **in_group("exploration", "exploration_noise_max", needs="exploration=gaussian", rare=True),
        **in_group("exploration", "ou_theta", "ou_reset", needs="exploration=ou"),
    }

    # ------------------------------------------------------------------------------------------------ the equations
    def critic_loss(self, nets: Any, batch: Batch, noise: Any) -> LossAndInfo:
        """Return the mean squared TD error, with y = r + γ Q'(s', μ'(s')) (algorithm 1)."""
        xp = array_namespace(batch.reward)
        next_q = nets.target_critic(batch.next_obs, nets.target_actor(batch.next_obs))  # (1, B)
        q = nets.critic(batch.obs, batch.action)  # (1, B)
        if self.critic == "categorical":  # logits (1, B, num_atoms), as in D4PG (Barth-Maron et al., 2018)
            return categorical_loss(batch, q, next_q, xp.zeros_like(batch.reward), self.value_range)
        target = bootstrap(batch.reward, batch.discount, next_q[0])
        return squared_loss(batch, q, target)

    def actor_loss(self, nets: Any, batch: Batch) -> LossAndInfo:
        """Return -mean Q(s, μ(s)); its gradient is the deterministic policy gradient (Silver, 2014)."""
        return -batch.mean(self.q_values(nets.critic.q1(batch.obs, nets.actor(batch.obs)))), {}

    def update(self, learner: Updater, batch: Batch, noise: Any, phase: int) -> None:
        """Update the critic, then the actor, then both targets."""
        learner.minimize("critic", self.critic_loss, batch, noise)
        learner.minimize("actor", self.actor_loss, batch)
        self.track_targets(learner)

    # ------------------------------------------------------------------------------------------------ acting
    def act(self, nets: Any, obs: Tree, noise: Array | None) -> Array:
        """Return μ(s), plus noise if any, clipped to the action range [-1, 1]."""
        action = nets.actor(obs)
        if noise is None:
            return action
        check_same_shape(action=action, noise=noise)
        return (action + noise).clip(-1.0, 1.0)  # as a method, because np.clip takes half of the acting time

    def explorer(self) -> ActionNoise:
        """Return exploration by noise on the action."""
        return ActionNoise(
            self.exploration,
            self.exploration_noise,
            self.exploration_noise_max,
            final_scale=self.exploration_final_scale,
            theta=self.ou_theta,
            reset=self.ou_reset,
        )
