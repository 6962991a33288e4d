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
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from array_api_compat import array_namespace

from duetto.algorithms.base import (
    Array,
    Batch,
    Count,
    CountOrZero,
    Fraction,
    NonNegative,
    ObservationScaling,
    OptimizerSpec,
    Positive,
    Tree,
    Updater,
    Within,
)
from duetto.algorithms.offpolicy import OffPolicy
from duetto.errors import UsageError
from duetto.functional.checks import same_shape
from duetto.functional.noise import ornstein_uhlenbeck
from duetto.functional.schedules import Decay, linear
from duetto.functional.targets import bootstrap, standardize
from duetto.networks.encoding import is_image
from duetto.networks.spaces import Box, Space
from duetto.networks.specs import Activation, Actor, Critic, CustomNetwork, Initializer, NetworkSpec


@dataclass(frozen=True)
class DDPG(OffPolicy):
    """Deep Deterministic Policy Gradient (Lillicrap et al., 2016, arXiv:1509.02971)."""

    tau: Fraction = 0.005
    """How far the target networks move towards the online ones at an update; 1 copies."""
    actor_learning_rate: Positive = 1e-3
    """Step size of the actor's Adam."""
    critic_learning_rate: Positive = 1e-3
    """Step size of the critic's Adam."""
    learning_rate_decay: Decay = "constant"
    """How both learning rates change over the run."""
    learning_rate_final: Fraction = 0.0
    """Their factor at the end of the run, unless constant."""
    max_grad_norm: NonNegative = 0.0
    """Global L2 norm that each network's gradient is clipped to; 0 turns clipping off."""
    actor_weight_decay: NonNegative = 0.0
    """L2 penalty on the actor's parameters."""
    critic_weight_decay: NonNegative = 0.0
    """L2 penalty on the critic's parameters."""
    decoupled_weight_decay: bool = False
    """Decay the weights themselves (AdamW) instead of adding to the gradient."""
    normalize_batch_reward: bool = False
    """Standardise the rewards of each batch."""
    normalize_observations: Literal["off", "collected", "sampled", "sampled_both"] = "off"
    """Scale observations by their running mean and std, over collected steps or sampled batches (both: and next)."""

    random_steps: CountOrZero = 10_000
    """Steps of uniformly random actions at the start."""
    exploration: Literal["gaussian", "ou", "none"] = "gaussian"
    """Noise on the action: independent, Ornstein-Uhlenbeck, or none."""
    exploration_noise: NonNegative = 0.1
    """Std of the noise, in units of the action range [-1, 1]."""
    exploration_scale: NonNegative = 1.0
    """Factor of the noise at the start of the run."""
    exploration_final_scale: NonNegative = 1.0
    """Factor of the noise once it has changed."""
    exploration_scale_steps: CountOrZero = 0
    """Steps over which the factor changes; 0 takes the whole run."""
    exploration_stops: bool = False
    """No noise at all after those steps (as skrl 1.1 does)."""
    ou_theta: NonNegative = 0.15
    """How fast Ornstein-Uhlenbeck noise returns to 0."""
    ou_dt: NonNegative = 0.0
    """Its time step; 0 is skrl's form, x ← x - θ x + σ N."""
    ou_reset: bool = True
    """Start it from 0 at the beginning of each episode."""

    hidden: Annotated[tuple[int, ...], Within(1)] = (400, 300)
    """Units of the hidden layers of actor and critic."""
    activation: Activation = "relu"
    """Activation of the hidden layers."""
    critic_action_layer: CountOrZero = 0
    """Linear layer of the critic at which the action joins; the original paper has 1."""
    initializer: Literal["fan_in", "normal"] = "fan_in"
    """Initial weights and biases: U(±gain/√inputs), or N(0, gain²)."""
    initializer_gain: Positive = 1.0
    """Gain of the initial weights and biases."""
    initializer_final_bound: NonNegative = 0.0
    """Draw the last layers from U(±this) instead, where above 0; the original paper has 0.003."""
    actor_network: CustomNetwork | None = None
    """An actor of your own (Python only)."""
    critic_network: CustomNetwork | None = None
    """A critic of your own (Python only)."""

    acting_networks: ClassVar[tuple[str, ...]] = ("actor",)
    observations: ClassVar[str] = "vectors, integers, Dict and Tuple of these"
    actions: ClassVar[str] = "Box"

    def __post_init__(self) -> None:
        super().__post_init__()
        last = len(self.hidden)
        if self.critic_action_layer > last:
            raise UsageError(f"critic_action_layer is {self.critic_action_layer}; the critic's last layer is {last}.")

    # ------------------------------------------------------------------------------------------------ the equations
    def critic_loss(self, nets: Any, batch: Batch, noise: Any) -> tuple[Array, dict[str, Array]]:
        """Mean squared TD error towards y = r + γ Q'(s', μ'(s')) (Lillicrap et al., 2016, algorithm 1)."""
        xp = array_namespace(batch.reward)
        next_q = nets.target_critic(batch.next_obs, nets.target_actor(batch.next_obs))[0]  # (B,)
        target = bootstrap(self.reward(batch), batch.discount, next_q)
        q = nets.critic(batch.obs, batch.action)[0]
        same_shape(q=q, target=target)
        error = q - target
        return batch.weighted_mean(error**2), {"q": q, "target": target, "priority": xp.abs(error)}

    def actor_loss(self, nets: Any, batch: Batch) -> tuple[Array, dict[str, Array]]:
        """-mean Q(s, μ(s)), whose gradient is the deterministic policy gradient (Silver et al., 2014)."""
        return -batch.mean(nets.critic.first(batch.obs, nets.actor(batch.obs))), {}

    def reward(self, batch: Batch) -> Array:
        """The batch's rewards (B,), standardised if asked for."""
        return standardize(batch.reward, batch.mean) if self.normalize_batch_reward else batch.reward

    def update(self, learner: Updater, batch: Batch, noise: Any, phase: int) -> None:
        """Critic, then actor, then both targets."""
        learner.minimize("critic", self.critic_loss, batch, noise)
        learner.minimize("actor", self.actor_loss, batch)
        self.track_targets(learner)

    def track_targets(self, learner: Updater) -> None:
        """Move both target networks."""
        learner.track("target_actor", "actor", self.tau)
        learner.track("target_critic", "critic", self.tau)

    # ------------------------------------------------------------------------------------------------ acting
    def act(self, nets: Any, obs: Tree, noise: Array | None) -> Array:
        """μ(s), plus noise if any, clipped to the action range [-1, 1]."""
        action = nets.actor(obs)
        if noise is None:
            return action
        same_shape(action=action, noise=noise)
        return array_namespace(action).clip(action + noise, -1.0, 1.0)

    def explore(
        self, random: np.random.Generator, state: np.ndarray, step: int, total_steps: int, action: Space
    ) -> tuple[np.ndarray, np.ndarray]:
        """Scaled noise for each environment and each action dimension, (N, A)."""
        steps = self.exploration_scale_steps or total_steps
        scale = linear(step, steps, self.exploration_scale, self.exploration_final_scale)
        if self.exploration == "none" or (self.exploration_stops and step >= steps):
            return np.zeros_like(state), state
        normal = random.standard_normal(state.shape, dtype=np.float32)
        if self.exploration == "gaussian":
            return scale * self.exploration_noise * normal, state
        state = ornstein_uhlenbeck(state, normal, self.ou_theta, self.exploration_noise, self.ou_dt)
        return scale * state, state

    def after_episode(self, state: np.ndarray, done: np.ndarray) -> np.ndarray:
        """Ornstein-Uhlenbeck noise starts again from 0."""
        return np.where(done[:, None], np.float32(0), state) if self.ou_reset else state

    def observation_scaling(self) -> ObservationScaling:
        """See `normalize_observations`."""
        return ObservationScaling(self.normalize_observations)

    def first_random_steps(self) -> int:
        """See `random_steps`."""
        return self.random_steps

    # ------------------------------------------------------------------------------------------------ what it needs
    def check_spaces(self, observation: Space, action: Space, environment: str) -> None:
        """A continuous action space, and observations that make a vector."""
        if not isinstance(action, Box):
            raise UsageError(f"{self.name()} needs a continuous action space (Box); {environment} has {action}.")
        if is_image(observation) and not (self.actor_network and self.critic_network):
            raise UsageError(
                f"{self.name()} takes vectors; {environment} observes {observation}, an image. "
                "Hand over an actor_network and a critic_network of your own that take images, in Python."
            )

    def networks(self, observation: Space, action: Space) -> dict[str, NetworkSpec]:
        """An actor and a critic."""
        init = Initializer(self.initializer, self.initializer_gain, self.initializer_final_bound)
        shape = (observation, action.size, self.hidden, self.activation, init)
        memory = self.recurrence(action)
        critic = Critic(*shape, self.critics(), self.critic_action_layer, self.critic_network, memory)
        return {"actor": Actor(*shape, self.actor_network, memory), "critic": critic}

    def critics(self) -> Count:
        """Members of the critic's ensemble."""
        return 1

    def targets(self) -> dict[str, str]:
        """One for each network."""
        return {"target_actor": "actor", "target_critic": "critic"}

    def optimizers(self) -> dict[str, OptimizerSpec]:
        """Adam for each network."""
        shared = (self.learning_rate_decay, self.learning_rate_final, self.max_grad_norm)
        decay = self.decoupled_weight_decay
        return {
            "actor": OptimizerSpec(self.actor_learning_rate, *shared, self.actor_weight_decay, decay),
            "critic": OptimizerSpec(self.critic_learning_rate, *shared, self.critic_weight_decay, decay),
        }
