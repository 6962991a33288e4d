"""What soft actor-critics have in common: a stochastic policy that is rewarded for its entropy, and its temperature.

act          a ~ π(s), tanh of a Gaussian; evaluations take tanh of its mean
temperature  one step down   -log α · mean (log π(ã|s) + H̄)           H̄ = -scale · (size of a)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
from array_api_compat import array_namespace

from duetto.algorithms.actor_critic import ActorCritic
from duetto.algorithms.base import Array, Batch, NonNegative, OptimizerSpec, Positive, Tree, Within
from duetto.algorithms.exploration import Sampled
from duetto.algorithms.searching import Search
from duetto.functional.gradients import stop_gradient
from duetto.networks.spaces import Space
from duetto.networks.specs import NetworkSpec, Parameter, SquashedGaussian


class Noise(NamedTuple):
    """Standard normal numbers for the actions of an update, (B, A) each."""

    now: Array
    next: Array


@dataclass(frozen=True)
class SoftActorCritic(ActorCritic):
    """Hyper-parameters of a squashed Gaussian policy, twin critics, and a temperature that is learned or not."""

    actor_learning_rate: Positive = 3e-4
    """Step size of the actor's Adam."""
    critic_learning_rate: Positive = 3e-4
    """Step size of the critic's Adam."""
    hidden: Annotated[tuple[int, ...], Within(1)] = (256, 256)
    """Units of the hidden layers of the actor, and of the critic unless `critic_hidden` says otherwise."""
    learn_temperature: bool = True
    """Adapt α so that the policy's entropy stays near the target; off, it stays as it is."""
    temperature: Positive = 1.0
    """α at the start: how much entropy counts beside reward."""
    temperature_learning_rate: Positive = 3e-4
    """Step size of the temperature's Adam."""
    target_entropy_scale: NonNegative = 1.0
    """The target entropy is minus this for each number of an action."""
    stochastic_evaluation: bool = False
    """Sample the actions of evaluations too, instead of taking the mode."""

    tuned: ClassVar[dict[str, Search | None]] = dict.fromkeys(
        ("learn_temperature", "temperature", "stochastic_evaluation")
    )

    def temperature_loss(self, nets: Any, batch: Batch, log_prob: Array) -> tuple[Array, dict[str, Array]]:
        """-log α (log π + H̄), whose gradient has the sign of equation 18's (as in the authors' code)."""
        xp = array_namespace(batch.reward)
        target = -self.target_entropy_scale * batch.action.shape[-1]
        loss = -nets.log_alpha * stop_gradient(batch.mean(log_prob) + target)
        return loss, {"temperature": xp.exp(nets.log_alpha)}

    def draw(self, random: np.random.Generator, batch: Batch) -> Noise:
        """Standard normal numbers for this observation's action and the next one's."""
        return Noise(*(random.standard_normal(batch.action.shape, dtype=np.float32) for _ in Noise._fields))

    # ------------------------------------------------------------------------------------------------ acting
    def act(self, nets: Any, obs: Tree, noise: Array | None) -> Array:
        """Samples of π(s), or without noise its mode."""
        policy = nets.actor(obs)
        return policy.mode() if noise is None else policy.sample(noise)

    def explorer(self) -> Sampled:
        """Exploration by the policy's own randomness."""
        return Sampled(self.stochastic_evaluation)

    # ------------------------------------------------------------------------------------------------ what it needs
    def networks(self, observation: Space, action: Space) -> dict[str, NetworkSpec]:
        """An actor, critics, and the temperature's logarithm."""
        return super().networks(observation, action) | {"log_alpha": Parameter(initial=float(np.log(self.temperature)))}

    def policy(self, size: int) -> SquashedGaussian:
        """The actor's head, tanh of a Gaussian."""
        return SquashedGaussian(size, self.hidden, self.activation, self.network)

    def critics(self) -> int:
        """Number of critics."""
        return 2

    def optimizers(self) -> dict[str, OptimizerSpec]:
        """Adam for each network, and for the temperature if it is learned."""
        temperature = {"log_alpha": self.optimizer(self.temperature_learning_rate)} if self.learn_temperature else {}
        return super().optimizers() | temperature
