"""Twin Delayed DDPG: DDPG with three changes against overestimated values.

    each update   ε ~ clip(N(0, σ), -c, c)                               one per sample and action dimension
                  y = r + γ min_i Q'_i(s', clip(μ'(s') + ε, -1, 1))      γ = 0 where the episode terminated
                  critics: minimize   Σ_i mean (Q_i(s, a) - y)²
    each d-th     actor:  minimize   -mean Q_1(s, μ(s))
                  targets: μ' and both Q' move by τ

The facts that define TD3, each with a test:

- The target is the minimum of the twin target critics. Each critic has its own gradient.
- The target action has clipped smoothing noise.
- The actor is delayed, and *all* target networks are delayed with it (`target_update`).
- The actor maximizes only Q_1.
- Truncated episodes bootstrap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from array_api_compat import array_namespace

from duetto.algorithms.actor_critic import categorical_loss, squared_loss
from duetto.algorithms.base import Array, Batch, LossAndInfo, Updater
from duetto.algorithms.ddpg import DDPG
from duetto.algorithms.options import Count, NonNegative, OptionTable, in_group
from duetto.functional.returns import bootstrap, smoothed_action


@dataclass(frozen=True)
class TD3(DDPG):
    """Twin Delayed DDPG (Fujimoto et al., 2018, arXiv:1802.09477)."""

    policy_delay: Count = 2
    """Critic updates per actor update."""
    target_noise: NonNegative = 0.2
    """Std of the noise on target actions in [-1, 1]; 0 for no noise."""
    target_noise_clip: tuple[float, float] = (-0.5, 0.5)
    """Range of the clipped target noise; -inf inf for no clipping."""
    twin_critic: bool = True
    """Use two critics and the minimum of their target values, instead of one critic."""
    target_update: Literal["with_actor", "every_step"] = "with_actor"
    """Update target networks with the actor, as in the paper, or at every step of the critics, as in DI-engine."""

    option_table: ClassVar[OptionTable] = {
        **in_group("", "twin_critic", "target_update", rare=True),
    }

    def phase(self, update: int) -> int:
        """Return 0 for every `policy_delay`-th update, which also updates the actor; else 1."""
        return 0 if update % self.policy_delay == 0 else 1

    def critic_loss(self, nets: Any, batch: Batch, noise: Array) -> LossAndInfo:
        """Return the clipped double-Q loss with target policy smoothing (Fujimoto et al., 2018, algorithm 1)."""
        xp = array_namespace(batch.reward)
        next_action = smoothed_action(
            nets.target_actor(batch.next_obs), noise, self.target_noise, *self.target_noise_clip
        )
        next_q = nets.target_critic(batch.next_obs, next_action)  # (2, B)
        q = nets.critic(batch.obs, batch.action)  # (2, B)
        if self.critic == "categorical":  # as in FastTD3: q and next_q are logits (2, B, num_atoms)
            return categorical_loss(batch, q, next_q, xp.zeros_like(batch.reward), self.value_range)
        lower_q = xp.min(next_q, axis=0)  # (B,), the lower of the two
        target = bootstrap(batch.reward, batch.discount, lower_q)
        return squared_loss(batch, q, target)

    def update(self, learner: Updater, batch: Batch, noise: Array, phase: int) -> None:
        """Update the critics, the actor in phase 0, and the targets according to `target_update`."""
        learner.minimize("critic", self.critic_loss, batch, noise)
        if phase == 0:
            learner.minimize("actor", self.actor_loss, batch)
        if phase == 0 or self.target_update == "every_step":
            self.track_targets(learner)

    def draw(self, random: np.random.Generator, batch: Batch) -> np.ndarray:
        """Draw standard normal noise for the target actions, (B, A)."""
        return random.standard_normal(batch.action.shape, dtype=np.float32)

    def critics(self) -> int:
        """Return the number of critics."""
        return 2 if self.twin_critic else 1
