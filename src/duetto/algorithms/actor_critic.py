"""The base class of off-policy actor-critics: networks, target networks, optimizers, spaces, hindsight."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

from array_api_compat import array_namespace
from typing_extensions import override

from duetto.algorithms import her
from duetto.algorithms.base import (
    PRIORITY,
    Array,
    Batch,
    HindsightSpec,
    LossAndInfo,
    ObservationScaling,
    OptimizerSpec,
    ReplaySpec,
    RewardScaling,
    SequenceSpec,
    Updater,
)
from duetto.algorithms.off_policy import OffPolicy
from duetto.algorithms.options import Bounds, CountOrZero, Fraction, NonNegative, OptionTable, Positive, Sizes, in_group
from duetto.errors import UsageError
from duetto.functional import categorical
from duetto.functional.array_ops import check_same_shape, stop_gradient
from duetto.functional.schedules import Decay
from duetto.networks.heads import CriticHead, DeterministicHead, SquashedGaussianHead
from duetto.networks.layers import Activation, Blocks
from duetto.networks.preprocessing import is_image
from duetto.networks.spaces import Box, Space, without_part
from duetto.networks.specs import AnyNetworkSpec, CustomNetwork, Initializer, NetworkSpec, Torso

PRIVILEGED = "privileged_state"  # a simulator's state that a robot cannot sense (MuJoCo Playground's name)


@dataclass(frozen=True)
class ActorCritic(OffPolicy):
    """Options of every off-policy actor-critic."""

    hindsight: Literal["none", "future", "final", "episode"] = "none"
    """Replace goals by those achieved at later steps (future), the last step (final) or any step (episode)."""
    hindsight_share: Fraction = 0.8
    """Fraction of a batch whose goals are replaced; 0.8 is the paper's k = 4."""

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
    normalize_rewards: bool = False
    """Divide the rewards of a batch by the running std of discounted returns."""
    return_bound: NonNegative = 5.0
    """Scale rewards further so that past returns stay within this bound; 0 for none."""
    normalize_observations: Literal["off", "collected", "sampled"] = "off"
    """Scale observations by their running mean and std, over collected steps or sampled batches."""
    random_steps: CountOrZero = 10_000
    """Steps of uniformly random actions at the start."""

    hidden: Sizes = (400, 300)
    """Units of the hidden layers of the actor, and of the critic unless `critic_hidden` is given."""
    critic_hidden: Sizes = ()
    """Units of the critic's hidden layers; empty to use `hidden`."""
    activation: Activation = "relu"
    """Activation of the hidden layers."""
    network: Blocks = "mlp"
    """Hidden layers: plain, with layer normalization, or SimBa's residual blocks of equal size."""
    critic_action_layer: CountOrZero = 0
    """Index of the critic's layer that gets the action; 1 in the DDPG paper."""
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
    tau: Fraction = 0.005
    """Step size of the target networks towards the online networks; 1 copies."""
    critic: Literal["scalar", "categorical"] = "scalar"
    """Critics learn values (squared error) or distributions over `num_atoms` fixed returns (cross-entropy)."""
    num_atoms: Annotated[int, Bounds(2)] = 101
    """Number of fixed returns of a categorical critic."""
    value_range: tuple[float, float] = (-5.0, 5.0)
    """Lowest and highest return of a categorical critic."""

    acting_networks: ClassVar[tuple[str, ...]] = ("actor",)
    observations: ClassVar[str] = "vectors, integers, Dict and Tuple of these"
    actions: ClassVar[str] = "Box"
    option_table: ClassVar[OptionTable] = {
        **in_group("exploration", "random_steps"),
        **in_group("networks", "hidden", search="auto"),
        **in_group("networks", "activation", "network", "critic_hidden"),
        **in_group("networks", "initializer", "initializer_gain", "initializer_final_bound", rare=True),
        **in_group("networks", "critic_action_layer", "actor_network", "critic_network", rare=True, search="auto"),
        **in_group("optimizer", "actor_learning_rate", "critic_learning_rate", "max_grad_norm", search="auto"),
        **in_group("optimizer", "learning_rate_decay"),
        **in_group("optimizer", "learning_rate_final", needs="learning_rate_decay"),
        **in_group("optimizer", "actor_weight_decay", "critic_weight_decay", rare=True, search="auto"),
        **in_group("optimizer", "decoupled_weight_decay", rare=True),
        **in_group("replay", "hindsight"),
        **in_group("replay", "hindsight_share", needs="hindsight"),
        **in_group("", "normalize_observations", "normalize_rewards"),
        **in_group("", "return_bound", needs="normalize_rewards", rare=True),
        **in_group("", "critic"),
        **in_group("", "num_atoms", "value_range", needs="critic=categorical"),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        last = len(self._critic_hidden())
        if self.critic_action_layer > last:
            raise UsageError(f"critic_action_layer is {self.critic_action_layer}; the critic's last layer is {last}.")
        if self.hindsight != "none" and self.n_step != 1:
            raise UsageError(
                f"n_step is {self.n_step}; with hindsight it must be 1, as rewards of earlier steps have another goal."
            )
        if self.hindsight != "none" and self.recurrent != "none":
            raise UsageError("hindsight is for transitions; recurrent layers learn from sequences. Choose one of them.")

    # ------------------------------------------------------------------------------------------------ what it needs
    def reward_scaling(self) -> RewardScaling | None:
        """Return how rewards are scaled with `normalize_rewards`: the first return decides, not an initial variance."""
        return RewardScaling(1e-4, sampled=True, bound=self.return_bound) if self.normalize_rewards else None

    @override
    def observation_scaling(self) -> ObservationScaling:
        return ObservationScaling(self.normalize_observations)

    def check_spaces(self, observation: Space, action: Space, environment: str) -> None:
        """Raise UsageError unless the action space is a Box with finite bounds and observations contain no image."""
        if not isinstance(action, Box):
            raise UsageError(f"{self.name()} needs a continuous action space (Box); {environment} has {action}.")
        if action.unbounded:
            raise UsageError(
                f"{self.name()} needs actions with finite bounds; {environment} has {action}, unbounded in dimensions "
                f"{action.unbounded}. Give its action_space finite low and high, or use ppo."
            )
        self.check_observations(observation, environment)

    def check_observations(self, observation: Space, environment: str) -> None:
        """Raise UsageError for images unless all networks are custom, and with hindsight if goals are missing."""
        if is_image(observation) and not (self.actor_network and self.critic_network):
            raise UsageError(
                f"{self.name()} takes vectors; {environment} observes {observation}, an image. "
                "Give a custom actor_network and critic_network for images, in Python."
            )
        if self.hindsight != "none":
            her.check_goals(observation, environment)

    def networks(self, observation: Space, action: Space) -> dict[str, AnyNetworkSpec]:
        """Return the specs of "actor" and "critic"; a part "privileged_state" of observations is the critic's alone."""
        init = Initializer(self.initializer, self.initializer_gain, self.initializer_final_bound, zero_biases=True)
        seen, recurrence = self.network_observation(observation), self.recurrence(action)
        torso, whole = Torso(without_part(seen, PRIVILEGED), recurrent=recurrence), Torso(seen, recurrent=recurrence)
        actor, critic = self.policy(action.size), self.critic_head(action.size)
        return {
            "actor": NetworkSpec(torso, actor, initializer=init, custom=self.actor_network),
            "critic": NetworkSpec(whole, critic, members=self.critics(), initializer=init, custom=self.critic_network),
        }

    def policy(self, size: int) -> DeterministicHead | SquashedGaussianHead:
        """Return the actor's head, for actions of `size` numbers."""
        return DeterministicHead(size, self.hidden, self.activation, self.network)

    def critic_head(self, size: int) -> CriticHead:
        """Return the head of each critic, for actions of `size` numbers."""
        outputs = 0 if self.critic == "scalar" else self.num_atoms
        return CriticHead(
            size, self._critic_hidden(), self.activation, self.network, self.critic_action_layer, outputs=outputs
        )

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
        """Return Adam with the shared optimizer options."""
        shared = (self.learning_rate_decay, self.learning_rate_final, self.max_grad_norm)
        return OptimizerSpec(learning_rate, *shared, weight_decay, self.decoupled_weight_decay)

    def memory(self) -> ReplaySpec | SequenceSpec:
        """Return the spec of the replay buffer, with hindsight if selected."""
        spec = super().memory()
        if self.hindsight == "none":
            return spec
        return replace(spec, hindsight=HindsightSpec(self.hindsight, self.hindsight_share))

    def network_observation(self, observation: Space) -> Space:
        """Return the observation space of networks, with hindsight without the achieved goal."""
        return observation if self.hindsight == "none" else without_part(observation, her.ACHIEVED)

    def q_values(self, output: Array) -> Array:
        """Return values (...) of critics' outputs: values (...), or logits (..., num_atoms)."""
        return output if self.critic == "scalar" else categorical.mean_value(output, *self.value_range)

    def track_targets(self, learner: Updater) -> None:
        """Move all target networks towards their sources by `tau`."""
        for target, source in self.targets().items():
            learner.track(target, source, self.tau)

    def targets(self) -> dict[str, str]:
        """Return a target for each network: target's name to source's."""
        return {"target_actor": "actor", "target_critic": "critic"}


def squared_loss(batch: Batch, q: Array, target: Array) -> LossAndInfo:
    """Return Σ_i mean (Q_i - y)² of values q (M, B) towards y (B,), which gets no gradient, and the report."""
    xp = array_namespace(q)
    check_same_shape(q=q[0], target=target)
    error = q - stop_gradient(target)[None]
    return batch.weighted_mean(xp.sum(error**2, axis=0)), {
        "q": q,
        "target": target,
        PRIORITY: xp.mean(xp.abs(error), axis=0),
    }


def categorical_loss(
    batch: Batch, logits: Array, next_logits: Array, entropy_cost: Array, value_range: tuple[float, float]
) -> LossAndInfo:
    """Return the mean cross-entropy of critics (Bellemare et al., 2017, arXiv:1707.06887, algorithm 1).

    p = distribution of the target critic with the lower mean at (s', a'),   y_j = r + γ (z_j - e),   z_j: fixed returns

    Args:
        batch: B transitions.
        logits: (M, B, n) of critics at (s, a).
        next_logits: (M, B, n) of target critics at (s', a'); they get no gradient.
        entropy_cost: e (B,), α log π(a'|s'); 0 without entropy.
        value_range: The lowest and the highest of the fixed returns.

    Returns:
        The loss; and values of critics and targets, and the target's share outside of the range.
    """
    xp, (low, high) = array_namespace(logits), value_range
    p = stop_gradient(categorical.lowest_critic(stop_gradient(next_logits), low, high))  # (B, n)
    atoms = categorical.atom_values(p, low, high)
    returns = categorical.shifted_atoms(batch.reward, batch.discount, stop_gradient(entropy_cost), atoms)
    target = categorical.project(p, returns, low, high)  # (B, n)
    loss = categorical.cross_entropy(xp.broadcast_to(target[None], logits.shape), logits)  # (M, B)
    q = categorical.mean_value(logits, low, high)
    value = xp.sum(target * xp.broadcast_to(atoms, target.shape), axis=-1)
    outside = xp.astype((returns < low) | (returns > high), p.dtype)
    return batch.weighted_mean(xp.mean(loss, axis=0)), {
        "q": q,
        "target": value,
        "clipped": batch.mean(xp.sum(p * outside, axis=-1)),
        PRIORITY: xp.mean(xp.abs(q - value[None]), axis=0),
    }
