"""Soft Actor-Critic for a choice among n actions: expectations over the policy are sums, not samples.

    act          a ~ π(s); evaluations take the most likely action
    each update  y = r + γ Σ_a π(a|s') (min_i Q'_i(s', a) - α log π(a|s'))      γ = 0 where the episode terminated
                 critics:      minimize   Σ_i mean (Q_i(s, a) - y)²
                 actor:        minimize   mean Σ_a π(a|s) (α log π(a|s) - min_i Q_i(s, a))
                 temperature:  minimize   -log α · mean (Σ_a π(a|s) log π(a|s) + H̄)            H̄ = scale · log n(s)
                 critics' targets: Q' ← τ Q + (1 - τ) Q'

The facts that define discrete SAC, in addition to SAC's:

- Targets and the actor's loss weight every action by its probability. The critics' loss includes only the action that
  the agent took.
- The actor's gradient goes through the probabilities, not through the values.
- n(s) is the number of allowed actions: n, unless the environment forbids some. All sums are over the allowed actions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace

from duetto.algorithms.actor_critic import squared_loss
from duetto.algorithms.base import Array, Batch, LossAndInfo
from duetto.algorithms.options import NonNegative, Option, OptionTable
from duetto.algorithms.sac import SAC, ActionNoisePair
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
    """Target entropy as a fraction of the maximum entropy, which equally likely actions have."""

    # Not options here: critics get no action as input, and their values are scalars.
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
        """Return the mean squared soft TD error, in expectation over next actions (equations 4, 10)."""
        xp = array_namespace(batch.reward)
        log_probs = nets.actor(batch.next_obs).log_probs  # (B, n)
        soft_q = xp.min(nets.target_critic(batch.next_obs), axis=0) - xp.exp(nets.log_alpha) * log_probs
        target = bootstrap(batch.reward, batch.discount, xp.sum(xp.exp(log_probs) * soft_q, axis=-1))
        every_q = nets.critic(batch.obs)  # (2, B, n)
        q = xp.stack([value_of_action(every_q[0], batch.action), value_of_action(every_q[1], batch.action)])
        return squared_loss(batch, q, target)

    def actor_loss(self, nets: Any, batch: Batch, noise: Any = ()) -> LossAndInfo:
        """Return mean Σ_a π(a|s) (α log π(a|s) - min Q(s, a)) (equation 12); the metrics are for `temperature_loss`."""
        xp = array_namespace(batch.reward)
        policy = nets.actor(batch.obs)
        log_probs, q = policy.log_probs, xp.min(nets.critic(batch.obs), axis=0)  # (B, n)
        check_same_shape(log_probs=log_probs, q=q)
        terms = xp.exp(log_probs) * log_probs
        losses = xp.sum(xp.exp(nets.log_alpha) * terms - xp.exp(log_probs) * q, axis=-1)
        info = {"negative_entropy": xp.sum(terms, axis=-1), "greatest_entropy": policy.max_entropy}  # (B,) each
        return batch.mean(losses), info

    def temperature_loss(self, nets: Any, batch: Batch, actor: dict[str, Array]) -> LossAndInfo:
        """Return -log α (Σ π log π + H̄) (equation 11, with log α in place of α).

        H̄ is `target_entropy_scale` times the largest possible entropy, the log of the number of allowed actions.
        """
        xp = array_namespace(batch.reward)
        target = self.target_entropy_scale * actor["greatest_entropy"]
        loss = -nets.log_alpha * stop_gradient(batch.mean(actor["negative_entropy"] + target))
        return loss, {"temperature": xp.exp(nets.log_alpha)}

    def draw(self, random: np.random.Generator, batch: Batch) -> ActionNoisePair:
        """Return no noise: expectations need none."""
        return ActionNoisePair((), ())

    # -------------------------------------------------------------------------------------------------------- specs
    def check_spaces(self, observation: Space, action: Space, environment: str) -> None:
        """Raise UsageError unless the action space is Discrete and `check_observations` raises no error."""
        if not isinstance(action, Discrete):
            raise UsageError(f"{self.name()} needs a Discrete action space; {environment} has {action}.")
        self.check_observations(observation, environment)

    def networks(self, observation: Space, action: Space) -> dict[str, AnyNetworkSpec]:
        """Return SAC's networks with a categorical policy, and critics that output a value per action."""
        specs: dict[str, Any] = super().networks(observation, action)
        torso = replace(specs["actor"].torso, hidden=self.hidden, activation=self.activation, blocks=self.network)
        values = ActionValueHead(action.size, self._critic_hidden(), self.activation, self.network)
        actor = replace(specs["actor"], torso=torso, head=PolicyHead(action))
        return specs | {"actor": actor, "critic": replace(specs["critic"], head=values)}
