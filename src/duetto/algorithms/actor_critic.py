"""Base classes of off-policy actor-critics: networks, optimizers, spaces, and the temperature of soft policies.

act          a ~ π(s), tanh of a Gaussian; evaluations take tanh of its mean      (soft actor-critics)
temperature  one step down   -log α · mean (log π(ã|s) + H̄)           H̄ = -scale · (size of a)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from array_api_compat import array_namespace

from duetto.algorithms.base import (
    Array,
    Batch,
    Bounds,
    CountOrZero,
    Fraction,
    NonNegative,
    ObservationScaling,
    OptimizerSpec,
    Positive,
    Tree,
    Updater,
)
from duetto.algorithms.exploration import PolicySampling
from duetto.algorithms.her import HindsightReplay
from duetto.algorithms.option_bounds import Searches
from duetto.errors import UsageError
from duetto.functional.array_ops import stop_gradient
from duetto.functional.schedules import Decay
from duetto.functional.targets import standardize
from duetto.networks.heads import CriticHead, DeterministicHead, SquashedGaussianHead
from duetto.networks.layers import Activation, Blocks
from duetto.networks.preprocessing import is_image
from duetto.networks.spaces import Box, Space
from duetto.networks.specs import AnyNetworkSpec, CustomNetwork, Initializer, NetworkSpec, ParameterSpec, Torso


@dataclass(frozen=True)
class ActorCritic(HindsightReplay):
    """Options of every off-policy actor-critic."""

    actor_learning_rate: Positive = 1e-3
    """Step size of the actor's Adam."""
    critic_learning_rate: Positive = 1e-3
    """Step size of the critic's Adam."""
    learning_rate_decay: Decay = "constant"
    """Schedule of all learning rates over the run."""
    learning_rate_final: Fraction = 0.0
    """Factor of the learning rates at the end of the run, unless constant."""
    max_grad_norm: NonNegative = 0.0
    """Global L2 norm to clip each network's gradient to; 0 for no clipping."""
    actor_weight_decay: NonNegative = 0.0
    """L2 penalty on the actor's parameters."""
    critic_weight_decay: NonNegative = 0.0
    """L2 penalty on the critic's parameters."""
    decoupled_weight_decay: bool = False
    """Decay the weights themselves (AdamW) instead of adding to the gradient."""
    normalize_batch_reward: bool = False
    """Standardize the rewards of each batch."""
    normalize_observations: Literal["off", "collected", "sampled", "sampled_both"] = "off"
    """Scale observations by their running mean and std, over collected steps or sampled batches (both: and next)."""
    random_steps: CountOrZero = 10_000
    """Steps of uniformly random actions at the start."""

    hidden: Annotated[tuple[int, ...], Bounds(1)] = (400, 300)
    """Units of the hidden layers of the actor, and of the critic unless `critic_hidden` is given."""
    critic_hidden: Annotated[tuple[int, ...], Bounds(1)] = ()
    """Units of the critic's hidden layers; empty for those of `hidden`."""
    activation: Activation = "relu"
    """Activation of the hidden layers."""
    network: Blocks = "mlp"
    """Hidden layers: plain, with layer normalization, or SimBa's residual blocks of equal size."""
    critic_action_layer: CountOrZero = 0
    """Linear layer of the critic that the action enters; 1 in the DDPG paper."""
    initializer: Literal["fan_in", "normal"] = "fan_in"
    """Initial weights and biases: U(±gain/√inputs) or N(0, gain²); recurrent layers have PyTorch's U(±1/√units)."""
    initializer_gain: Positive = 1.0
    """Gain of the initial weights and biases."""
    initializer_final_bound: NonNegative = 0.0
    """Above 0: draw the last layers from U(±this) instead; 0.003 in the DDPG paper."""
    actor_network: CustomNetwork | None = None
    """A custom actor (Python only)."""
    critic_network: CustomNetwork | None = None
    """A custom critic (Python only)."""

    acting_networks: ClassVar[tuple[str, ...]] = ("actor",)
    observations: ClassVar[str] = "vectors, integers, Dict and Tuple of these"
    actions: ClassVar[str] = "Box"
    tuned: ClassVar[Searches] = {
        **dict.fromkeys(("learning_rate_decay", "learning_rate_final", "decoupled_weight_decay", "random_steps")),
        **dict.fromkeys(("normalize_batch_reward", "normalize_observations", "activation", "network")),
        **dict.fromkeys(("initializer", "initializer_gain", "initializer_final_bound", "critic_hidden")),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        last = len(self._critic_hidden())
        if self.critic_action_layer > last:
            raise UsageError(f"critic_action_layer is {self.critic_action_layer}; the critic's last layer is {last}.")

    def reward(self, batch: Batch) -> Array:
        """Return the batch's rewards (B,), standardized with `normalize_batch_reward`."""
        return standardize(batch.reward, batch.mean) if self.normalize_batch_reward else batch.reward

    def observation_scaling(self) -> ObservationScaling:
        """See `normalize_observations`."""
        return ObservationScaling(self.normalize_observations)

    def first_random_steps(self) -> int:
        """See `random_steps`."""
        return self.random_steps

    def check_spaces(self, observation: Space, action: Space, environment: str) -> None:
        """Raise UsageError unless the action space is a Box with finite bounds and observations contain no image."""
        if not isinstance(action, Box):
            raise UsageError(f"{self.name()} needs a continuous action space (Box); {environment} has {action}.")
        if action.unbounded:
            raise UsageError(
                f"{self.name()} needs actions with finite bounds; {environment} has {action}, unbounded in dimensions "
                f"{action.unbounded}. Give its action_space finite low and high, or use ppo."
            )
        self.check_vectors(observation, environment)
        self.check_goals(observation, environment)

    def check_vectors(self, observation: Space, environment: str) -> None:
        """Raise UsageError for images unless all networks are custom."""
        if is_image(observation) and not (self.actor_network and self.critic_network):
            raise UsageError(
                f"{self.name()} takes vectors; {environment} observes {observation}, an image. "
                "Give a custom actor_network and critic_network for images, in Python."
            )

    def networks(self, observation: Space, action: Space) -> dict[str, AnyNetworkSpec]:
        """Return the specs of "actor" and "critic"."""
        init = Initializer(self.initializer, self.initializer_gain, self.initializer_final_bound, zero_biases=True)
        torso = Torso(self.network_observation(observation), recurrent=self.recurrence(action))
        actor, critic = self.policy(action.size), self.critic_head(action.size)
        return {
            "actor": NetworkSpec(torso, actor, initializer=init, custom=self.actor_network),
            "critic": NetworkSpec(torso, critic, members=self.critics(), initializer=init, custom=self.critic_network),
        }

    def policy(self, size: int) -> DeterministicHead | SquashedGaussianHead:
        """Return the actor's head, for actions of `size` numbers."""
        return DeterministicHead(size, self.hidden, self.activation, self.network)

    def critic_head(self, size: int) -> CriticHead:
        """Return the head of each critic, for actions of `size` numbers."""
        return CriticHead(size, self._critic_hidden(), self.activation, self.network, self.critic_action_layer)

    def critics(self) -> int:
        """Return the number of critics."""
        return 1

    def _critic_hidden(self) -> tuple[int, ...]:
        return self.critic_hidden or self.hidden

    def optimizers(self) -> dict[str, OptimizerSpec]:
        """Adam for each network."""
        return {
            "actor": self.optimizer(self.actor_learning_rate, self.actor_weight_decay),
            "critic": self.optimizer(self.critic_learning_rate, self.critic_weight_decay),
        }

    def optimizer(self, learning_rate: float, weight_decay: float = 0.0) -> OptimizerSpec:
        """Return Adam with the options that all optimizers share."""
        shared = (self.learning_rate_decay, self.learning_rate_final, self.max_grad_norm)
        return OptimizerSpec(learning_rate, *shared, weight_decay, self.decoupled_weight_decay)


@dataclass(frozen=True)
class TargetedActorCritic(ActorCritic):
    """Options of actor-critics with target networks."""

    tau: Fraction = 0.005
    """Step of the target networks towards the online ones at an update; 1 copies."""

    def track_targets(self, learner: Updater) -> None:
        """Move all target networks towards their sources by `tau`."""
        for target, source in self.targets().items():
            learner.track(target, source, self.tau)

    def targets(self) -> dict[str, str]:
        """Return a target for each network: target's name to source's."""
        return {"target_actor": "actor", "target_critic": "critic"}


class ActionNoisePair(NamedTuple):
    """Standard normal noise for the actions of an update, (B, A) each."""

    now: Array
    next: Array


@dataclass(frozen=True)
class SoftActorCritic(ActorCritic):
    """Options of a squashed Gaussian policy, twin critics and a learned or constant temperature."""

    actor_learning_rate: Positive = 3e-4
    """Step size of the actor's Adam."""
    critic_learning_rate: Positive = 3e-4
    """Step size of the critic's Adam."""
    hidden: Annotated[tuple[int, ...], Bounds(1)] = (256, 256)
    """Units of the hidden layers of the actor, and of the critic unless `critic_hidden` is given."""
    learn_temperature: bool = True
    """Adapt α to keep the policy's entropy near the target; off: keep α."""
    temperature: Positive = 1.0
    """Initial α, the weight of entropy relative to reward."""
    temperature_learning_rate: Positive = 3e-4
    """Step size of the temperature's Adam."""
    target_entropy_scale: NonNegative = 1.0
    """The target entropy is minus this times the size of an action."""
    stochastic_evaluation: bool = False
    """Sample actions also in evaluations, instead of using the mode."""

    tuned: ClassVar[Searches] = dict.fromkeys(("learn_temperature", "temperature", "stochastic_evaluation"))

    def temperature_loss(self, nets: Any, batch: Batch, log_prob: Array) -> tuple[Array, dict[str, Array]]:
        """-log α (log π + H̄), whose gradient has the sign of equation 18's (as in the authors' code)."""
        xp = array_namespace(batch.reward)
        target = -self.target_entropy_scale * batch.action.shape[-1]
        loss = -nets.log_alpha * stop_gradient(batch.mean(log_prob) + target)
        return loss, {"temperature": xp.exp(nets.log_alpha)}

    def draw(self, random: np.random.Generator, batch: Batch) -> ActionNoisePair:
        """Draw standard normal noise for this action and the next one."""
        return ActionNoisePair(
            *(random.standard_normal(batch.action.shape, dtype=np.float32) for _ in ActionNoisePair._fields)
        )

    # ------------------------------------------------------------------------------------------------ acting
    def act(self, nets: Any, obs: Tree, noise: Array | None) -> Array:
        """Return samples of π(s), or without noise its mode."""
        policy = nets.actor(obs)
        return policy.mode() if noise is None else policy.sample(noise)

    def explorer(self) -> PolicySampling:
        """Return exploration by sampling the policy."""
        return PolicySampling(self.stochastic_evaluation)

    # ------------------------------------------------------------------------------------------------ what it needs
    def networks(self, observation: Space, action: Space) -> dict[str, AnyNetworkSpec]:
        """Return actor, critics, and the temperature's logarithm."""
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
