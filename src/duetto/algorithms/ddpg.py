"""Deep Deterministic Policy Gradient.

    act          a = clip(μ(s) + scale · noise, -1, 1)
    each update  sample a batch (s, a, r, γ, s') from the memory        γ = 0 where the episode terminated
                 y = r + γ Q'(s', μ'(s'))
                 critic: one step down    mean (Q(s, a) - y)²
                 actor:  one step down   -mean  Q(s, μ(s))              with the critic just updated
                 targets: μ' ← τ μ + (1 - τ) μ',  Q' ← τ Q + (1 - τ) Q'

The facts that make it DDPG: a deterministic actor, ascended through the critic's gradient with respect to the action;
the actor's loss moves the actor alone; targets for both networks, moved after every update; truncated episodes
bootstrap.
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
    """Noise on the action: independent, Ornstein-Uhlenbeck, or none."""
    exploration_noise: NonNegative = 0.1
    """Std of the noise, in units of the action range [-1, 1]."""
    exploration_noise_max: NonNegative = 0.0
    """Above 0: each episode has its own std, uniform between `exploration_noise` and this (Gaussian noise only)."""
    exploration_final_scale: NonNegative = 1.0
    """Factor of the noise at the end of the run; it changes linearly from 1."""
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
        """Mean squared TD error towards y = r + γ Q'(s', μ'(s')) (Lillicrap et al., 2016, algorithm 1)."""
        xp = array_namespace(batch.reward)
        next_q = nets.target_critic(batch.next_obs, nets.target_actor(batch.next_obs))  # (1, B)
        q = nets.critic(batch.obs, batch.action)  # (1, B)
        if self.critic == "categorical":  # logits (1, B, num_atoms), as in D4PG (Barth-Maron et al., 2018)
            return categorical_loss(batch, q, next_q, xp.zeros_like(batch.reward), self.value_range)
        target = bootstrap(batch.reward, batch.discount, next_q[0])
        return squared_loss(batch, q, target)

    def actor_loss(self, nets: Any, batch: Batch) -> LossAndInfo:
        """-mean Q(s, μ(s)), whose gradient is the deterministic policy gradient (Silver et al., 2014)."""
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
        return (action + noise).clip(-1.0, 1.0)  # not xp.clip, which takes half of the time of acting in NumPy

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
