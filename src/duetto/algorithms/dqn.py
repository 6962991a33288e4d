"""Deep Q-network, with what was found to help it: double, dueling and n-step learning, priorities, rescaled values.

    act          with probability ε a random action, else argmax_a Q(s, a)
    each update  a batch (s, a, R, γ, s') from the memory: R sums n rewards, γ = 0 where the episode terminated
                 a* = argmax_a Q(s', a)                 the online network chooses (double), the target network judges
                 y = h(R + γ h⁻¹(Q'(s', a*)))           h rescales values, or is the identity
                 one step down    mean w ℓ(Q(s, a) - y)          ℓ: Huber's loss, or the square
    each k-th    Q' ← Q, or at each a little of it

The facts that make it (double) DQN: the greedy action of the *online* network is valued by the *target* network; the
target network stands still between copies; ε is drawn for every environment and step; truncated episodes bootstrap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from array_api_compat import array_namespace

from duetto.algorithms.base import (
    Array,
    Batch,
    Count,
    CountOrZero,
    Fraction,
    NonNegative,
    OptimizerSpec,
    Positive,
    SequenceBatch,
    Tree,
    Updater,
    Within,
)
from duetto.algorithms.exploration import EpsilonGreedy
from duetto.algorithms.offpolicy import OffPolicy
from duetto.errors import UsageError
from duetto.functional.checks import same_shape
from duetto.functional.rescaling import rescale, unrescale
from duetto.functional.schedules import Decay
from duetto.functional.targets import bootstrap
from duetto.functional.values import chosen, huber
from duetto.networks.spaces import Discrete, Space
from duetto.networks.specs import ActionValues, Activation, Blocks, CustomNetwork, Network, NetworkSpec, Torso


@dataclass(frozen=True)
class DQN(OffPolicy):
    """Deep Q-network (Mnih et al., 2015) with double (arXiv:1509.06461), dueling (1511.06581) and n-step learning."""

    learning_rate: Positive = 1e-4
    """Step size of Adam."""
    learning_rate_decay: Decay = "constant"
    """How it changes over the run."""
    learning_rate_final: Fraction = 0.0
    """Its factor at the end of the run, unless constant."""
    adam_epsilon: Positive = 1e-8
    """Adam's ε."""
    weight_decay: NonNegative = 0.0
    """L2 penalty on the parameters."""
    decoupled_weight_decay: bool = False
    """Decay the weights themselves (AdamW) instead of adding to the gradient."""
    max_grad_norm: NonNegative = 10.0
    """Global L2 norm that the gradient is clipped to; 0 turns clipping off."""
    tau: Fraction = 1.0
    """How far the target network moves towards the online one; 1 copies."""
    target_period: Count = 1_000
    """Updates between two moves of the target network."""
    double: bool = True
    """Let the online network choose the action that the target network values."""
    huber_delta: NonNegative = 1.0
    """Errors beyond this count linearly; 0 squares all."""
    rescale_values: bool = False
    """Learn values on R2D2's scale h, for rewards of any size."""
    rescale_epsilon: Positive = 1e-3
    """ε of h."""

    random_steps: CountOrZero = 0
    """Steps of uniformly random actions at the start."""
    exploration: Literal["linear", "exponential", "ladder"] = "linear"
    """ε falls linearly, or exponentially, or each environment keeps its own (Ape-X)."""
    exploration_start: Fraction = 1.0
    """ε at the start; of a ladder, that of its first rung."""
    exploration_end: Fraction = 0.05
    """ε at the end."""
    exploration_steps: Count = 50_000
    """Steps over which it falls; exponentially, in which the distance falls by e."""
    ladder_exponent: NonNegative = 7.0
    """α of a ladder: environment i of N has ε^(1 + α i / (N-1))."""
    evaluation_epsilon: Fraction = 0.0
    """ε of evaluations."""

    hidden: Annotated[tuple[int, ...], Within(1)] = (256, 256)
    """Units of the hidden layers."""
    activation: Activation = "relu"
    """Activation of the hidden layers."""
    image_features: Count = 512
    """Units of the layer behind an image's convolutions."""
    head_hidden: Annotated[tuple[int, ...], Within(1)] = ()
    """Units of further hidden layers, of each of a dueling network's two streams."""
    dueling: bool = True
    """Make Q from a state's value and the actions' advantages."""
    network: Blocks = "mlp"
    """Hidden layers: plain, with layer normalisation, or SimBa's residual blocks of one size."""
    q_network: CustomNetwork | None = None
    """An action-value network of your own (Python only)."""

    acting_networks: ClassVar[tuple[str, ...]] = ("q",)
    observations: ClassVar[str] = "vectors, images, integers, Dict and Tuple of these"
    actions: ClassVar[str] = "Discrete"

    # ------------------------------------------------------------------------------------------------ the equations
    def loss(self, nets: Any, batch: Batch | SequenceBatch) -> tuple[Array, dict[str, Array]]:
        """The TD error's loss (van Hasselt et al., 2016), the same for steps (B,) and for sequences (B, L)."""
        xp = array_namespace(batch.reward)
        q = chosen(nets.q(batch.obs), batch.action)
        target = self.target(nets, batch.reward, batch.discount, batch.next_obs)
        same_shape(q=q, target=target)
        error = q - target
        info = {"q": q, "target": target, "priority": xp.abs(error)}
        return batch.weighted_mean(huber(error, self.huber_delta)), info

    def target(self, nets: Any, reward: Array, discount: Array, next_obs: Tree) -> Array:
        """y = h(R + γ h⁻¹(Q'(s', a*))), in the shape of the reward."""
        xp = array_namespace(reward)
        next_q = nets.target_q(next_obs)
        best = xp.argmax(nets.q(next_obs) if self.double else next_q, axis=-1)
        next_value = chosen(next_q, best)
        if not self.rescale_values:
            return bootstrap(reward, discount, next_value)
        returns = bootstrap(reward, discount, unrescale(next_value, self.rescale_epsilon))
        return rescale(returns, self.rescale_epsilon)

    def phase(self, update: int) -> int:
        """0 where the target network moves."""
        return 0 if update % self.target_period == 0 else 1

    def update(self, learner: Updater, batch: Batch | SequenceBatch, noise: Any, phase: int) -> None:
        """One step of Q; the target network follows in phase 0."""
        learner.minimize("q", self.loss, batch)
        if phase == 0:
            learner.track("target_q", "q", self.tau)

    # ------------------------------------------------------------------------------------------------ acting
    def act(self, nets: Any, obs: Tree, noise: Array | None) -> Array:
        """The greedy actions (N,), but where `noise` (N, 1) is no -1, that one."""
        q = nets.q(obs)
        xp = array_namespace(q)
        greedy = xp.argmax(q, axis=-1)
        return greedy if noise is None else xp.where(noise[:, 0] < 0, greedy, xp.astype(noise[:, 0], greedy.dtype))

    def explorer(self) -> EpsilonGreedy:
        """Random actions with probability ε."""
        return EpsilonGreedy(
            self.exploration,
            self.exploration_start,
            self.exploration_end,
            self.exploration_steps,
            self.ladder_exponent,
            self.evaluation_epsilon,
        )

    def first_random_steps(self) -> int:
        """See `random_steps`."""
        return self.random_steps

    # ------------------------------------------------------------------------------------------------ what it needs
    def check_spaces(self, observation: Space, action: Space, environment: str) -> None:
        """A choice among actions."""
        if not isinstance(action, Discrete):
            raise UsageError(f"{self.name()} needs a Discrete action space; {environment} has {action}.")

    def networks(self, observation: Space, action: Space) -> dict[str, NetworkSpec]:
        """The action values."""
        torso = Torso(
            observation, self.image_features, self.hidden, self.activation, self.recurrence(action), self.network
        )
        head = ActionValues(action.size, self.head_hidden, self.activation, self.dueling, self.network)
        return {"q": Network(torso, head, custom=self.q_network)}

    def targets(self) -> dict[str, str]:
        """One."""
        return {"target_q": "q"}

    def optimizers(self) -> dict[str, OptimizerSpec]:
        """Adam."""
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
