"""Deep Q-network, with its extensions: double, dueling and n-step learning, priorities, rescaled values.

    act          with probability ε a random action, else argmax_a Q(s, a)
    each update  a batch (s, a, R, γ, s') from the memory: R sums n rewards, γ = 0 where the episode terminated
                 a* = argmax_a Q(s', a)                 the online network selects (double), the target network values
                 y = h(R + γ h⁻¹(Q'(s', a*)))           h rescales values, or is the identity
                 one step down    mean w ℓ(Q(s, a) - y)          ℓ: Huber's loss, or the square
    each k-th    Q' ← Q, or at each a little of it

The facts that make it (double) DQN: the greedy action of the *online* network is valued by the *target* network; the
target network is constant between copies; ε is drawn for every environment and step; truncated episodes bootstrap.
Where an environment forbids actions, random ones, the argmax and so a* are among the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from array_api_compat import array_namespace

from duetto.algorithms.base import PRIORITY, Array, Batch, LossAndInfo, OptimizerSpec, SequenceBatch, Tree, Updater
from duetto.algorithms.exploration import EpsilonGreedy, EpsilonSchedule
from duetto.algorithms.off_policy import OffPolicy
from duetto.algorithms.options import (
    Count,
    CountOrZero,
    Fraction,
    NonNegative,
    Option,
    OptionTable,
    Positive,
    Sizes,
    in_group,
)
from duetto.errors import UsageError
from duetto.functional.array_ops import check_same_shape
from duetto.functional.q_values import huber, rescale, unrescale, value_of_action
from duetto.functional.returns import bootstrap
from duetto.functional.schedules import Decay
from duetto.networks.heads import ActionValueHead
from duetto.networks.layers import Activation, Blocks
from duetto.networks.spaces import Discrete, Space
from duetto.networks.specs import AnyNetworkSpec, CustomNetwork, NetworkSpec, Torso


@dataclass(frozen=True)
class DQN(OffPolicy):
    """Deep Q-network (Mnih et al., 2015) with double (arXiv:1509.06461), dueling (1511.06581) and n-step learning."""

    learning_rate: Positive = 1e-4
    """Step size of Adam."""
    learning_rate_decay: Decay = "constant"
    """Schedule of the learning rate over the run."""
    learning_rate_final: Fraction = 0.0
    """Factor of the learning rate at the end of the run, unless constant."""
    adam_epsilon: Positive = 1e-8
    """Adam's ε."""
    weight_decay: NonNegative = 0.0
    """L2 penalty on the parameters."""
    decoupled_weight_decay: bool = False
    """Decay the weights themselves (AdamW) instead of adding to the gradient."""
    max_grad_norm: NonNegative = 10.0
    """Global L2 norm that the gradient is clipped to; 0 turns clipping off."""

    random_steps: CountOrZero = 0
    """Steps of uniformly random actions at the start."""
    exploration: EpsilonSchedule = "linear"
    """ε falls linearly or exponentially, or each environment has a constant ε (ladder, Ape-X)."""
    exploration_start: Fraction = 1.0
    """Initial ε; of a ladder, the largest one."""
    exploration_end: Fraction = 0.05
    """Final ε."""
    exploration_steps: Count = 50_000
    """Steps over which ε falls; exponentially, steps in which its distance to the end shrinks to 37 %."""
    ladder_exponent: NonNegative = 7.0
    """α of a ladder: environment i of N has ε^(1 + α i / (N-1))."""
    evaluation_epsilon: Fraction = 0.0
    """ε of evaluations."""

    hidden: Sizes = (256, 256)
    """Units of the hidden layers."""
    activation: Activation = "relu"
    """Activation of the hidden layers."""
    image_features: Count = 512
    """Units of the layer after an image's convolutions."""
    head_hidden: Sizes = ()
    """Units of further hidden layers, in each stream of a dueling network."""
    dueling: bool = True
    """Compute Q from a state's value and the actions' advantages."""
    network: Blocks = "mlp"
    """Hidden layers: plain, with layer normalization, or SimBa's residual blocks of equal size."""
    q_network: CustomNetwork | None = None
    """A custom action-value network (Python only)."""

    tau: Fraction = 1.0
    """Step size of the target network towards the online network; 1 copies."""
    target_period: Count = 1_000
    """Updates between two updates of the target network."""
    double: bool = True
    """Select the target's action with the online network."""
    huber_delta: NonNegative = 1.0
    """Errors above this have a linear loss; 0 for the squared loss."""
    rescale_values: bool = False
    """Learn values on R2D2's scale h, for rewards of any size."""
    rescale_epsilon: Positive = 1e-3
    """ε of h."""

    acting_networks: ClassVar[tuple[str, ...]] = ("q",)
    observations: ClassVar[str] = "vectors, images, integers, Dict and Tuple of these"
    actions: ClassVar[str] = "Discrete"
    option_table: ClassVar[OptionTable] = {
        **in_group("exploration", "random_steps", "exploration", "exploration_start"),
        **in_group("exploration", "evaluation_epsilon", rare=True),
        **in_group(
            "exploration", "exploration_end", "exploration_steps", needs="exploration=linear,exponential", search="auto"
        ),
        **in_group("exploration", "ladder_exponent", needs="exploration=ladder", rare=True),
        **in_group("networks", "hidden", "head_hidden", "dueling", search="auto"),
        **in_group("networks", "activation", "network", "image_features"),
        "q_network": Option("networks", rare=True),
        "learning_rate": Option("optimizer"),
        **in_group("optimizer", "learning_rate_decay", "max_grad_norm"),
        **in_group("optimizer", "learning_rate_final", needs="learning_rate_decay"),
        "weight_decay": Option("optimizer"),
        **in_group("optimizer", "decoupled_weight_decay", needs="weight_decay", rare=True),
        **in_group("optimizer", "adam_epsilon", rare=True),
        **in_group("", "huber_delta", "rescale_values"),
        **in_group("", "rescale_epsilon", needs="rescale_values", rare=True),
    }

    # ------------------------------------------------------------------------------------------------ the equations
    def loss(self, nets: Any, batch: Batch | SequenceBatch) -> LossAndInfo:
        """Loss of the TD error (van Hasselt et al., 2016), for transitions (B,) and sequences (B, L)."""
        xp = array_namespace(batch.reward)
        q = value_of_action(nets.q(batch.obs), batch.action)
        target = self.target(nets, batch.reward, batch.discount, batch.next_obs)
        check_same_shape(q=q, target=target)
        error = q - target
        info = {"q": q, "target": target, PRIORITY: xp.abs(error)}
        return batch.weighted_mean(huber(error, self.huber_delta)), info

    def target(self, nets: Any, reward: Array, discount: Array, next_obs: Tree) -> Array:
        """y = h(R + γ h⁻¹(Q'(s', a*))), in the shape of the reward."""
        xp = array_namespace(reward)
        next_q = nets.target_q(next_obs)
        best = xp.argmax(nets.q(next_obs) if self.double else next_q, axis=-1)
        next_value = value_of_action(next_q, best)
        return self.look_ahead(reward, discount, next_value)

    def look_ahead(self, reward: Array, discount: Array, next_value: Array) -> Array:
        """y = h(R + γ h⁻¹(V)) from the value V after the rewards; h is the identity unless `rescale_values`."""
        if not self.rescale_values:
            return bootstrap(reward, discount, next_value)
        returns = bootstrap(reward, discount, unrescale(next_value, self.rescale_epsilon))
        return rescale(returns, self.rescale_epsilon)

    # ------------------------------------------------------------------------------------------------ updates
    def phase(self, update: int) -> int:
        """Return 0 for updates of the target network, every `target_period` updates, else 1."""
        return 0 if update % self.target_period == 0 else 1

    def update(self, learner: Updater, batch: Batch | SequenceBatch, noise: Any, phase: int) -> None:
        """Make one step of Q; in phase 0 the target network follows."""
        learner.minimize("q", self.loss, batch)
        if phase == 0:
            learner.track("target_q", "q", self.tau)

    def targets(self) -> dict[str, str]:
        """Return the target network."""
        return {"target_q": "q"}

    # ------------------------------------------------------------------------------------------------ acting
    def act(self, nets: Any, obs: Tree, noise: Array | None) -> Array:
        """Return the greedy actions (N,), or `noise` (N, 1) where it is not -1."""
        q = nets.q(obs)  # (N, n)
        xp = array_namespace(q)
        greedy = xp.argmax(q, axis=-1)
        return greedy if noise is None else xp.where(noise[:, 0] < 0, greedy, xp.astype(noise[:, 0], greedy.dtype))

    def explorer(self) -> EpsilonGreedy:
        """Return ε-greedy exploration."""
        return EpsilonGreedy(
            self.exploration,
            self.exploration_start,
            self.exploration_end,
            self.exploration_steps,
            self.ladder_exponent,
            self.evaluation_epsilon,
        )

    # ------------------------------------------------------------------------------------------------ what it needs
    def check_spaces(self, observation: Space, action: Space, environment: str) -> None:
        """Raise UsageError unless the action space is Discrete."""
        if not isinstance(action, Discrete):
            raise UsageError(f"{self.name()} needs a Discrete action space; {environment} has {action}.")

    def networks(self, observation: Space, action: Space) -> dict[str, AnyNetworkSpec]:
        """Return the spec of the network "q", the action values."""
        torso = Torso(
            observation, self.image_features, self.hidden, self.activation, self.recurrence(action), self.network
        )
        head = ActionValueHead(action.size, self.head_hidden, self.activation, self.network, self.dueling)
        return {"q": NetworkSpec(torso, head, custom=self.q_network)}

    def optimizers(self) -> dict[str, OptimizerSpec]:
        """Return Adam for the network "q"."""
        spec = OptimizerSpec(
            self.learning_rate,
            self.learning_rate_decay,
            self.learning_rate_final,
            self.max_grad_norm,
            self.weight_decay,
            self.decoupled_weight_decay,
            self.adam_epsilon,
        )
        return {"q": spec}
