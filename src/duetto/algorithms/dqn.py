"""Deep Q-network, with its extensions: double, dueling and n-step learning, priorities, rescaled values.

    act          with probability ε a random action, else argmax_a Q(s, a)
    each update  a batch (s, a, R, γ, s') from the buffer: R sums n rewards, γ = 0 where the episode terminated
                 a* = argmax_a Q(s', a)                 double: the online network selects, the target network evaluates
                 y = h(R + γ h⁻¹(Q'(s', a*)))           h rescales values, or is the identity
                 minimize    mean w ℓ(Q(s, a) - y)               ℓ: Huber's loss, or the square
    each k-th    Q' ← τ Q + (1 - τ) Q'                  τ = 1 copies Q;  k: `target_period`

The facts that define (double) DQN:

- The *target* network evaluates the greedy action of the *online* network.
- The target network is constant between copies.
- At each step, each environment independently explores with probability ε.
- Truncated episodes bootstrap.
- If an environment forbids actions, random actions, greedy actions and a* are allowed actions.
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
    """Final learning rate as a fraction of the initial one, if it decays."""
    adam_epsilon: Positive = 1e-8
    """Adam's ε."""
    weight_decay: NonNegative = 0.0
    """L2 penalty on the parameters."""
    decoupled_weight_decay: bool = False
    """Decay the weights directly (AdamW) instead of adding an L2 term to the gradient."""
    max_grad_norm: NonNegative = 10.0
    """Maximum global L2 norm of the gradient; 0 turns clipping off."""

    random_steps: CountOrZero = 0
    """Steps of uniformly random actions at the start."""
    exploration: EpsilonSchedule = "linear"
    """ε falls linearly or exponentially, or each environment has a constant ε (ladder, Ape-X)."""
    exploration_start: Fraction = 1.0
    """Initial ε; with ladder, the largest ε."""
    exploration_end: Fraction = 0.05
    """Final ε."""
    exploration_steps: Count = 50_000
    """Steps over which ε falls; with exponential, 37 % of the fall remains after these steps."""
    ladder_exponent: NonNegative = 7.0
    """α of the ladder: environment i of N has ε^(1 + α i / (N-1))."""
    evaluation_epsilon: Fraction = 0.0
    """ε of evaluations."""

    hidden: Sizes = (256, 256)
    """Units of the hidden layers."""
    activation: Activation = "relu"
    """Activation of the hidden layers; simba always has relu."""
    image_features: Count = 512
    """Units of the layer after an image's convolutions."""
    head_hidden: Sizes = ()
    """Units of the head's hidden layers; a dueling network has these layers in both streams."""
    dueling: bool = True
    """Compute Q from a state's value and the actions' advantages."""
    network: Blocks = "mlp"
    """Hidden layers: plain, with layer normalization, or SimBa's residual blocks (all of one size)."""
    q_network: CustomNetwork | None = None
    """A custom action-value network (Python only)."""

    tau: Fraction = 1.0
    """Step size of the target network towards the online network; 1 copies the online network."""
    target_period: Count = 1_000
    """Updates between two updates of the target network."""
    double: bool = True
    """Select the target's action with the online network."""
    huber_delta: NonNegative = 1.0
    """Errors above this have a linear loss; 0 for the squared loss."""
    rescale_values: bool = False
    """Learn values on R2D2's compressed scale h, for rewards of any size."""
    rescale_epsilon: Positive = 1e-3
    """ε of R2D2's scale h."""

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
        """Return the mean loss of the TD errors (B,), or (B, L) for sequences (van Hasselt et al., 2016)."""
        xp = array_namespace(batch.reward)
        q = value_of_action(nets.q(batch.obs), batch.action)
        target = self.target(nets, batch.reward, batch.discount, batch.next_obs)
        check_same_shape(q=q, target=target)
        error = q - target
        info = {"q": q, "target": target, PRIORITY: xp.abs(error)}
        return batch.weighted_mean(huber(error, self.huber_delta)), info

    def target(self, nets: Any, reward: Array, discount: Array, next_obs: Tree) -> Array:
        """Return y = h(R + γ h⁻¹(Q'(s', a*))), in the shape of the reward."""
        xp = array_namespace(reward)
        next_q = nets.target_q(next_obs)
        best = xp.argmax(nets.q(next_obs) if self.double else next_q, axis=-1)
        next_value = value_of_action(next_q, best)
        return self.look_ahead(reward, discount, next_value)

    def look_ahead(self, reward: Array, discount: Array, next_value: Array) -> Array:
        """Return y = h(R + γ h⁻¹(V)) for the value V of s'; without `rescale_values`, h is the identity."""
        if not self.rescale_values:
            return bootstrap(reward, discount, next_value)
        returns = bootstrap(reward, discount, unrescale(next_value, self.rescale_epsilon))
        return rescale(returns, self.rescale_epsilon)

    # ------------------------------------------------------------------------------------------------ updates
    def phase(self, update: int) -> int:
        """Return 0 if this update also updates the target network (every `target_period` updates), else 1."""
        return 0 if update % self.target_period == 0 else 1

    def update(self, learner: Updater, batch: Batch | SequenceBatch, noise: Any, phase: int) -> None:
        """Update Q, and in phase 0 the target network."""
        learner.minimize("q", self.loss, batch)
        if phase == 0:
            learner.track("target_q", "q", self.tau)

    def targets(self) -> dict[str, str]:
        """Return the name of the target network, mapped to the name of the network that it follows."""
        return {"target_q": "q"}

    # ------------------------------------------------------------------------------------------------ acting
    def act(self, nets: Any, obs: Tree, noise: Array | None) -> Array:
        """Return actions (N,): those in `noise` (N, 1), and the greedy actions where `noise` is -1 or None."""
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

    # -------------------------------------------------------------------------------------------------------- specs
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
