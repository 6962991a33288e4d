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

PRIVILEGED = "privileged_state"  # MuJoCo Playground's name for the simulator's state, which a robot cannot sense


@dataclass(frozen=True)
class ActorCritic(OffPolicy):
    """Options of every off-policy actor-critic."""

    hindsight: Literal["none", "future", "final", "episode"] = "none"
    """Replace goals by goals reached in the episode: from this step on (future), at the end (final), any (episode)."""
    hindsight_share: Fraction = 0.8
    """Fraction of a batch whose goals are replaced; 0.8 is the paper's k = 4."""

    actor_learning_rate: Positive = 1e-3
    """Step size of the actor's Adam."""
    critic_learning_rate: Positive = 1e-3
    """Step size of the critic's Adam."""
    learning_rate_decay: Decay = "constant"
    """Schedule of all learning rates over the run."""
    learning_rate_final: Fraction = 0.0
    """Final learning rates as a fraction of the initial ones, if they decay."""
    max_grad_norm: NonNegative = 0.0
    """Maximum global L2 norm of each network's gradient; 0 turns clipping off."""
    actor_weight_decay: NonNegative = 0.0
    """L2 penalty on the actor's parameters."""
    critic_weight_decay: NonNegative = 0.0
    """L2 penalty on the critic's parameters."""
    decoupled_weight_decay: bool = False
    """Decay the weights directly (AdamW) instead of adding an L2 term to the gradient."""
    normalize_rewards: bool = False
    """Divide the rewards of a batch by the running std of discounted returns."""
    return_bound: NonNegative = 5.0
    """Divide normalized rewards further, so that no past return exceeds this bound; 0 for no bound."""
    normalize_observations: Literal["off", "collected", "sampled"] = "off"
    """Normalize observations by their running mean and std, of collected steps or of sampled batches."""
    random_steps: CountOrZero = 10_000
    """Steps of uniformly random actions at the start."""

    hidden: Sizes = (400, 300)
    """Units of the hidden layers of the actor, and of the critic unless `critic_hidden` is given."""
    critic_hidden: Sizes = ()
    """Units of the critic's hidden layers; empty to use `hidden`."""
    activation: Activation = "relu"
    """Activation of the hidden layers; simba always has relu."""
    network: Blocks = "mlp"
    """Hidden layers: plain, with layer normalization, or SimBa's residual blocks (all of one size)."""
    critic_action_layer: CountOrZero = 0
    """Index of the critic's layer that gets the action; 1 in the DDPG paper."""
    initializer: Literal["fan_in", "normal"] = "fan_in"
    """Initial weights and biases: U(±gain/√inputs) or N(0, gain²); recurrent layers have PyTorch's U(±1/√units)."""
    initializer_gain: Positive = 1.0
    """Gain of the initial weights and biases."""
    initializer_final_bound: NonNegative = 0.0
    """If above 0, draw the last layers' initial weights and biases from U(±this value); 0.003 in the DDPG paper."""
    actor_network: CustomNetwork | None = None
    """A custom actor (Python only)."""
    critic_network: CustomNetwork | None = None
    """A custom critic (Python only)."""
    tau: Fraction = 0.005
    """Step size of the target networks towards the online networks; 1 copies the online networks."""
    critic: Literal["scalar", "categorical"] = "scalar"
    """Learn values (squared error), or distributions over a grid of returns (cross-entropy)."""
    num_atoms: Annotated[int, Bounds(2)] = 101
    """Number of fixed returns of a categorical critic."""
    value_range: tuple[float, float] = (-5.0, 5.0)
    """Lowest and highest fixed return of a categorical critic."""

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
            raise UsageError(
                f"critic_action_layer is {self.critic_action_layer}, but the critic's last layer is {last}. "
                f"Set it to at most {last}."
            )
        if self.hindsight != "none" and (self.n_step != 1 or self.recurrent != "none"):
            raise UsageError(
                f"n_step is {self.n_step} and recurrent is {self.recurrent}; with hindsight they must be 1 and none, "
                "because it computes a new reward for single steps only."
            )

    # -------------------------------------------------------------------------------------------------------- specs
    def reward_scaling(self) -> RewardScaling | None:
        """Return the scaling of rewards that `normalize_rewards` turns on; None if it is off.

        The initial variance has a small weight, so that the first returns determine the scale.
        """
        return RewardScaling(1e-4, sampled=True, bound=self.return_bound) if self.normalize_rewards else None

    @override
    def observation_scaling(self) -> ObservationScaling:
        return ObservationScaling(self.normalize_observations)

    def check_spaces(self, observation: Space, action: Space, environment: str) -> None:
        """Raise UsageError unless actions are a Box with finite bounds and `check_observations` raises no error."""
        if not isinstance(action, Box):
            raise UsageError(f"{self.name()} needs a continuous action space (Box); {environment} has {action}.")
        if action.unbounded:
            raise UsageError(
                f"{self.name()} needs actions with finite bounds; {environment} has {action}, unbounded in dimensions "
                f"{action.unbounded}. Give its action_space finite low and high, or use ppo."
            )
        self.check_observations(observation, environment)

    def check_observations(self, observation: Space, environment: str) -> None:
        """Raise UsageError for images without custom networks, and for hindsight without goals."""
        if is_image(observation) and not (self.actor_network and self.critic_network):
            raise UsageError(
                f"{self.name()} takes vectors; {environment} observes {observation}, an image. "
                "Give a custom actor_network and critic_network for images, in Python."
            )
        if self.hindsight != "none":
            her.check_goals(observation, environment)

    def networks(self, observation: Space, action: Space) -> dict[str, AnyNetworkSpec]:
        """Return the specs of "actor" and "critic".

        If observations have a part "privileged_state", only the critic gets it. With hindsight, no network gets the
        achieved goal.
        """
        init = Initializer(self.initializer, self.initializer_gain, self.initializer_final_bound, zero_biases=True)
        recurrence = self.recurrence(action)
        seen = observation if self.hindsight == "none" else without_part(observation, her.ACHIEVED)
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
        """Return Adam for each network."""
        return {
            "actor": self.optimizer(self.actor_learning_rate, self.actor_weight_decay),
            "critic": self.optimizer(self.critic_learning_rate, self.critic_weight_decay),
        }

    def optimizer(self, learning_rate: float, weight_decay: float = 0.0) -> OptimizerSpec:
        """Return Adam with these values; its other options are the same for all networks."""
        shared = (self.learning_rate_decay, self.learning_rate_final, self.max_grad_norm)
        return OptimizerSpec(learning_rate, *shared, weight_decay, self.decoupled_weight_decay)

    def memory(self) -> ReplaySpec | SequenceSpec:
        """Return the spec of the replay buffer, with hindsight if selected."""
        spec = super().memory()
        if self.hindsight == "none":
            return spec
        return replace(spec, hindsight=HindsightSpec(self.hindsight, self.hindsight_share))

    def q_values(self, output: Array) -> Array:
        """Return the values (...) of critics. `output` is values (...) or, if categorical, logits (..., num_atoms)."""
        return output if self.critic == "scalar" else categorical.mean_value(output, *self.value_range)

    def track_targets(self, learner: Updater) -> None:
        """Move all target networks towards their online networks by `tau`."""
        for target, source in self.targets().items():
            learner.track(target, source, self.tau)

    def targets(self) -> dict[str, str]:
        """Return the name of each target network, mapped to the name of the network that it follows."""
        return {"target_actor": "actor", "target_critic": "critic"}


def squared_loss(batch: Batch, q: Array, target: Array) -> LossAndInfo:
    """Return the loss Σ_i mean w (Q_i - y)² with the batch's weights w, and its metrics.

    `q` (M, B) are the values Q_i of M critics. The target y (B,) gets no gradient.
    """
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
    """Return the critics' mean cross-entropy with the target (Bellemare et al., 2017, arXiv:1707.06887, algorithm 1).

    The critics' distributions are over fixed returns z_j. The target has the probabilities p at the returns
    y_j = r + γ (z_j - e), projected onto z_j. p is from the target critic with the lowest mean at (s', a').

    Args:
        batch: B transitions.
        logits: The critics' outputs (M, B, n) at (s, a).
        next_logits: The target critics' outputs (M, B, n) at (s', a'); they get no gradient.
        entropy_cost: e (B,), which is α log π(a'|s'); 0 without entropy.
        value_range: The lowest and the highest of the fixed returns.

    Returns:
        The loss and its metrics: the critics' values "q", the target's mean "target", the new priorities, and
        "clipped", the probability of returns y_j outside of the range.
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
