"""What all off-policy actor-critics for continuous actions have in common: networks, optimisers, spaces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from duetto.algorithms.base import (
    Array,
    Batch,
    CountOrZero,
    Fraction,
    NonNegative,
    ObservationScaling,
    OptimizerSpec,
    Positive,
    Updater,
    Within,
)
from duetto.algorithms.hindsight import Hindsight
from duetto.algorithms.searching import Search
from duetto.errors import UsageError
from duetto.functional.schedules import Decay
from duetto.functional.targets import standardize
from duetto.networks.encoding import is_image
from duetto.networks.spaces import Box, Space
from duetto.networks.specs import (
    Activation,
    Blocks,
    CustomNetwork,
    Deterministic,
    Initializer,
    Network,
    NetworkSpec,
    SquashedGaussian,
    Torso,
    Values,
)


@dataclass(frozen=True)
class ActorCritic(Hindsight):
    """Hyper-parameters of every off-policy actor-critic."""

    actor_learning_rate: Positive = 1e-3
    """Step size of the actor's Adam."""
    critic_learning_rate: Positive = 1e-3
    """Step size of the critic's Adam."""
    learning_rate_decay: Decay = "constant"
    """How all learning rates change over the run."""
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

    hidden: Annotated[tuple[int, ...], Within(1)] = (400, 300)
    """Units of the hidden layers of the actor, and of the critic unless `critic_hidden` says otherwise."""
    critic_hidden: Annotated[tuple[int, ...], Within(1)] = ()
    """Units of the critic's hidden layers; none takes `hidden`."""
    activation: Activation = "relu"
    """Activation of the hidden layers."""
    network: Blocks = "mlp"
    """Hidden layers: plain, with layer normalisation, or SimBa's residual blocks of one size."""
    critic_action_layer: CountOrZero = 0
    """Linear layer of the critic at which the action joins; the original DDPG paper has 1."""
    initializer: Literal["fan_in", "normal"] = "fan_in"
    """Initial weights and biases: U(±gain/√inputs), or N(0, gain²); recurrent layers keep PyTorch's U(±1/√units)."""
    initializer_gain: Positive = 1.0
    """Gain of the initial weights and biases."""
    initializer_final_bound: NonNegative = 0.0
    """Draw the last layers from U(±this) instead, where above 0; the original DDPG paper has 0.003."""
    actor_network: CustomNetwork | None = None
    """An actor of your own (Python only)."""
    critic_network: CustomNetwork | None = None
    """A critic of your own (Python only)."""

    acting_networks: ClassVar[tuple[str, ...]] = ("actor",)
    observations: ClassVar[str] = "vectors, integers, Dict and Tuple of these"
    actions: ClassVar[str] = "Box"
    tuned: ClassVar[dict[str, Search | None]] = {
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
        """The batch's rewards (B,), standardised if asked for."""
        return standardize(batch.reward, batch.mean) if self.normalize_batch_reward else batch.reward

    def observation_scaling(self) -> ObservationScaling:
        """See `normalize_observations`."""
        return ObservationScaling(self.normalize_observations)

    def first_random_steps(self) -> int:
        """See `random_steps`."""
        return self.random_steps

    def check_spaces(self, observation: Space, action: Space, environment: str) -> None:
        """Raise UsageError unless the action space is a Box with finite bounds and observations make a vector."""
        if not isinstance(action, Box):
            raise UsageError(f"{self.name()} needs a continuous action space (Box); {environment} has {action}.")
        if action.unbounded:
            raise UsageError(
                f"{self.name()} gives actions in [-1, 1], which bounds make the environment's; the action space of "
                f"{environment}, {action}, has no finite bounds in dimensions {action.unbounded}. Give the "
                "environment's action_space finite low and high, or take ppo, which needs none."
            )
        self.check_vectors(observation, environment)
        self.check_goals(observation, environment)

    def check_vectors(self, observation: Space, environment: str) -> None:
        """Raise UsageError for images, which the networks here do not take."""
        if is_image(observation) and not (self.actor_network and self.critic_network):
            raise UsageError(
                f"{self.name()} takes vectors; {environment} observes {observation}, an image. "
                "Hand over an actor_network and a critic_network of your own that take images, in Python."
            )

    def networks(self, observation: Space, action: Space) -> dict[str, NetworkSpec]:
        """Specs of the networks "actor" and "critic"."""
        init = Initializer(self.initializer, self.initializer_gain, self.initializer_final_bound)
        torso = Torso(self.seen(observation), recurrent=self.recurrence(action))
        actor = self.policy(action.size)
        critic = Values(action.size, self._critic_hidden(), self.activation, self.network, self.critic_action_layer)
        return {
            "actor": Network(torso, actor, initializer=init, custom=self.actor_network),
            "critic": Network(torso, critic, members=self.critics(), initializer=init, custom=self.critic_network),
        }

    def policy(self, size: int) -> Deterministic | SquashedGaussian:
        """The actor's head, for actions of `size` numbers."""
        return Deterministic(size, self.hidden, self.activation, self.network)

    def critics(self) -> int:
        """Members of the critic's ensemble."""
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
        """Adam with the settings that all optimisers share."""
        shared = (self.learning_rate_decay, self.learning_rate_final, self.max_grad_norm)
        return OptimizerSpec(learning_rate, *shared, weight_decay, self.decoupled_weight_decay)


@dataclass(frozen=True)
class TargetedActorCritic(ActorCritic):
    """Hyper-parameters of actor-critics with target networks, which most have."""

    tau: Fraction = 0.005
    """How far the target networks move towards the online ones at an update; 1 copies."""

    def track_targets(self, learner: Updater) -> None:
        """Move all target networks towards their sources by `tau`."""
        for target, source in self.targets().items():
            learner.track(target, source, self.tau)

    def targets(self) -> dict[str, str]:
        """A target for each network, as target's name to source's."""
        return {"target_actor": "actor", "target_critic": "critic"}
