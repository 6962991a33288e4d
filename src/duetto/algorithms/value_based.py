"""Options and methods of algorithms that select discrete actions by a network's outputs: the DQN family and BC."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from array_api_compat import array_namespace

from duetto.algorithms.base import (
    Array,
    Bounds,
    Count,
    CountOrZero,
    Fraction,
    NonNegative,
    OptimizerSpec,
    Positive,
    Tree,
)
from duetto.algorithms.exploration import EpsilonGreedy
from duetto.algorithms.off_policy import ReplayAlgorithm
from duetto.algorithms.options import Option, OptionTable, in_group
from duetto.errors import UsageError
from duetto.functional.schedules import Decay
from duetto.networks.heads import ActionValueHead
from duetto.networks.layers import Activation, Blocks
from duetto.networks.spaces import Discrete, Space
from duetto.networks.specs import AnyNetworkSpec, CustomNetwork, NetworkSpec, Torso


@dataclass(frozen=True)
class ValueBased(ReplayAlgorithm):
    """Options of a network "q" with an output for each action, its optimizer, and ε-greedy exploration."""

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
    exploration: Literal["linear", "exponential", "ladder"] = "linear"
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

    hidden: Annotated[tuple[int, ...], Bounds(1)] = (256, 256)
    """Units of the hidden layers."""
    activation: Activation = "relu"
    """Activation of the hidden layers."""
    image_features: Count = 512
    """Units of the layer after an image's convolutions."""
    head_hidden: Annotated[tuple[int, ...], Bounds(1)] = ()
    """Units of further hidden layers, in each stream of a dueling network."""
    dueling: bool = True
    """Compute Q from a state's value and the actions' advantages."""
    network: Blocks = "mlp"
    """Hidden layers: plain, with layer normalization, or SimBa's residual blocks of equal size."""
    q_network: CustomNetwork | None = None
    """A custom action-value network (Python only)."""

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
    }

    # ------------------------------------------------------------------------------------------------ acting
    def act(self, nets: Any, obs: Tree, noise: Array | None) -> Array:
        """Return the greedy actions (N,), or `noise` (N, 1) where it is not -1."""
        return self.choice(nets.q(obs), noise)

    def choice(self, q: Array, noise: Array | None) -> Array:
        """Return the actions (N,) of `act`, from the action values (N, n)."""
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

    def first_random_steps(self) -> int:
        """See `random_steps`."""
        return self.random_steps

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


@dataclass(frozen=True)
class SequenceValueBased(ValueBased):
    """Options of algorithms that learn from sequences, with R2D2's defaults."""

    batch_size: Count = 64
    """Sequences per update."""
    train_every: Count = 4
    """Steps between two phases of learning."""
    learning_starts: CountOrZero = 5_000
    """Steps before the first update."""
    adam_epsilon: Positive = 1e-3
    """Adam's ε."""
    max_grad_norm: NonNegative = 40.0
    """Global L2 norm that the gradient is clipped to; 0 turns clipping off."""
    exploration: Literal["linear", "exponential", "ladder"] = "ladder"
    """ε falls linearly or exponentially, or each environment has a constant ε (ladder, Ape-X)."""
    exploration_start: Fraction = 0.4
    """Initial ε; of a ladder, the largest one."""
    hidden: Annotated[tuple[int, ...], Bounds(1)] = ()
    """Units of hidden layers before the recurrent ones."""
    head_hidden: Annotated[tuple[int, ...], Bounds(1)] = (512,)
    """Units of further hidden layers, in each stream of a dueling network."""
    recurrent: Literal["none", "lstm", "gru"] = "lstm"
    """Recurrent layers, for tasks in which one observation does not show the state."""
    recurrent_size: Count = 512
    """Units of the recurrent layers."""
    burn_in: CountOrZero = 40
    """Steps at the start of a sequence that only warm the hidden state up."""
    unroll: Count = 40
    """Steps of a sequence in the loss."""
    overlap: CountOrZero = 40
    """Steps that a sequence shares with the next."""
