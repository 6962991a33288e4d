"""Soft Actor-Critic for a choice among n actions, where expectations over the policy are sums instead of samples.

    act          a ~ π(s); evaluations take the likeliest
    each update  y = r + γ Σ_a π(a|s') (min_i Q'_i(s', a) - α log π(a|s'))      γ = 0 where the episode terminated
                 critics:      one step down   Σ_i mean (Q_i(s, a) - y)²
                 actor:        one step down   mean Σ_a π(a|s) (α log π(a|s) - min_i Q_i(s, a))
                 temperature:  one step down   -log α · mean (Σ_a π(a|s) log π(a|s) + H̄)       H̄ = scale · log n(s)
                 critics' targets: Q' ← τ Q + (1 - τ) Q'

The facts that make it discrete SAC, besides those of SAC: every action of a state counts by its probability, the one
that was taken in the critics' own prediction alone; the actor's gradient goes through probabilities, not values. Where
an environment forbids some, n(s) counts the others, and all sums are over these.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace

from duetto.algorithms.actor_critic import squared_loss
from duetto.algorithms.base import Array, Batch, LossAndInfo, Updater
from duetto.algorithms.options import NonNegative, Option, OptionTable
from duetto.algorithms.sac import SAC
from duetto.errors import UsageError
from duetto.functional.array_ops import check_same_shape, stop_gradient
from duetto.functional.q_values import value_of_action
from duetto.functional.returns import bootstrap
from duetto.networks.heads import ActionValueHead, PolicyHead
from duetto.networks.spaces import Discrete, Space
from duetto.networks.specs import AnyNetworkSpec


@dataclass(frozen=True)
class DiscreteSAC(SAC):
    """Soft Actor-Critic for Discrete actions (Christodoulou, 2019, arXiv:1910.07207)."""

    target_entropy_scale: NonNegative = 0.98
    """The target entropy is this fraction of the maximum, that of equally likely actions."""

    # No options: critics take no action, and their values are scalars.
    critic_action_layer: ClassVar[int] = 0  # pyright: ignore[reportIncompatibleVariableOverride]
    critic: ClassVar[str] = "scalar"  # pyright: ignore[reportIncompatibleVariableOverride]
    num_atoms: ClassVar[int] = 0  # pyright: ignore[reportIncompatibleVariableOverride]
    value_range: ClassVar[tuple[float, float]] = (-1.0, 1.0)  # pyright: ignore[reportIncompatibleVariableOverride]

    actions: ClassVar[str] = "Discrete"
    option_table: ClassVar[OptionTable] = {
        "target_entropy_scale": Option(needs="learn_temperature", search={"low": 0.1, "high": 1.0}),
    }

    # ------------------------------------------------------------------------------------------------ the equations
    def critic_loss(self, nets: Any, batch: Batch, noise: Any = ()) -> LossAndInfo:
        """Mean squared soft TD errors, of expectations over the next action (Christodoulou, 2019, equations 10, 12)."""
        xp = array_namespace(batch.reward)
        log_probs = nets.actor(batch.next_obs).log_probs  # (B, n)
        soft_q = xp.min(nets.target_critic(batch.next_obs), axis=0) - xp.exp(nets.log_alpha) * log_probs
        target = bootstrap(batch.reward, batch.discount, xp.sum(xp.exp(log_probs) * soft_q, axis=-1))
        every_q = nets.critic(batch.obs)  # (2, B, n)
        q = xp.stack([value_of_action(every_q[0], batch.action), value_of_action(every_q[1], batch.action)])
        return squared_loss(batch, q, target)

    def actor_loss(self, nets: Any, batch: Batch, noise: Any = ()) -> LossAndInfo:
        """Σ_a π(a|s) (α log π(a|s) - min Q(s, a)) (equation 12); with it the terms π(a|s) log π(a|s), (B, n)."""
        xp = array_namespace(batch.reward)
        policy = nets.actor(batch.obs)
        log_probs, q = policy.log_probs, xp.min(nets.critic(batch.obs), axis=0)  # (B, n)
        check_same_shape(log_probs=log_probs, q=q)
        terms = xp.exp(log_probs) * log_probs
        losses = xp.sum(xp.exp(nets.log_alpha) * terms - xp.exp(log_probs) * q, axis=-1)
        return batch.mean(losses), {"negative_entropy": terms, "greatest_entropy": policy.max_entropy}

    def temperature_loss(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, nets: Any, batch: Batch, log_prob: Array, greatest: Array
    ) -> LossAndInfo:
        """-log α (Σ π log π + H̄) of the terms π log π (B, n) and log n(s) (B,) (equation 11, by the logarithm)."""
        xp = array_namespace(batch.reward)
        target = self.target_entropy_scale * greatest
        loss = -nets.log_alpha * stop_gradient(batch.mean(xp.sum(log_prob, axis=-1) + target))
        return loss, {"temperature": xp.exp(nets.log_alpha)}

    def update(self, learner: Updater, batch: Batch, noise: Any, phase: int) -> None:
        """Update the networks in SAC's order, without random numbers."""
        learner.minimize("critic", self.critic_loss, batch)
        actor = learner.minimize("actor", self.actor_loss, batch)
        if self.learn_temperature:
            learner.minimize(
                "log_alpha", self.temperature_loss, batch, actor["negative_entropy"], actor["greatest_entropy"]
            )
        self.track_targets(learner)

    def draw(self, random: np.random.Generator, batch: Batch) -> Any:
        """Return an empty tuple: the update needs no noise."""
        return ()

    # ------------------------------------------------------------------------------------------------ what it needs
    def check_spaces(self, observation: Space, action: Space, environment: str) -> None:
        """Raise UsageError unless the action space is Discrete and observations contain no image."""
        if not isinstance(action, Discrete):
            raise UsageError(f"{self.name()} needs a Discrete action space; {environment} has {action}.")
        self.check_observations(observation, environment)

    def networks(self, observation: Space, action: Space) -> dict[str, AnyNetworkSpec]:
        """Return SAC's networks with a categorical policy and critics of all actions."""
        specs: dict[str, Any] = super().networks(observation, action)
        torso = replace(specs["actor"].torso, hidden=self.hidden, activation=self.activation, blocks=self.network)
        values = ActionValueHead(action.size, self._critic_hidden(), self.activation, self.network)
        actor = replace(specs["actor"], torso=torso, head=PolicyHead(action))
        return specs | {"actor": actor, "critic": replace(specs["critic"], head=values)}
