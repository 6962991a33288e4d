"""What all algorithms that choose among actions by a network's numbers have in common: DQN's kin, and cloning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from array_api_compat import array_namespace

from duetto.algorithms.base import (
    Array,
    Count,
    CountOrZero,
    Fraction,
    NonNegative,
    OptimizerSpec,
    Positive,
    Tree,
    Within,
)
from duetto.algorithms.exploration import EpsilonGreedy
from duetto.algorithms.offpolicy import Replayed
from duetto.algorithms.searching import Search
from duetto.errors import UsageError
from duetto.functional.schedules import Decay
from duetto.networks.spaces import Discrete, Space
from duetto.networks.specs import ActionValues, Activation, Blocks, CustomNetwork, Network, NetworkSpec, Torso


@dataclass(frozen=True)
class ChoiceNetwork(Replayed):
    """Hyper-parameters of a network "q" with a number for each action, of its optimiser, and of exploring by ε."""

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

    random_steps: CountOrZero = 0
    """Steps of uniformly random actions at the start."""
    exploration: Literal["linear", "exponential", "ladder"] = "linear"
    """ε falls linearly, or exponentially, or each environment keeps its own (Ape-X)."""
    exploration_start: Fraction = 1.0
    """ε at the start; of a ladder, that of its first rung."""
    exploration_end: Fraction = 0.05
    """ε at the end."""
    exploration_steps: Count = 50_000
    """Steps over which it falls; exponentially, in which its distance to the end shrinks to 37 %."""
    ladder_exponent: NonNegative = 7.0
    """α of a ladder: environment i of N has ε^(1 + α i / (N-1))."""
    evaluation_epsilon: Fraction = 0.0
    """ε of evaluations."""

    hidden: Annotated[tuple[int, ...], Within(1)] = (256, 256)
    """Units of the hidden layers."""
    activation: Activation = "relu"
    """Activation of the hidden layers."""
    image_features: Count = 512
    """Units of the layer after an image's convolutions."""
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
    tuned: ClassVar[dict[str, Search | None]] = {
        **dict.fromkeys(("learning_rate_decay", "learning_rate_final", "adam_epsilon", "decoupled_weight_decay")),
        **dict.fromkeys(("max_grad_norm", "random_steps", "exploration", "exploration_start", "ladder_exponent")),
        **dict.fromkeys(("evaluation_epsilon", "activation", "image_features", "network")),
    }

    # ------------------------------------------------------------------------------------------------ acting
    def act(self, nets: Any, obs: Tree, noise: Array | None) -> Array:
        """The greedy actions (N,), replaced by `noise` (N, 1) where that is not -1."""
        return self.choice(nets.q(obs), noise)

    def choice(self, q: Array, noise: Array | None) -> Array:
        """The actions (N,) of `act`, from the action values (N, n)."""
        xp = array_namespace(q)
        greedy = xp.argmax(q, axis=-1)
        return greedy if noise is None else xp.where(noise[:, 0] < 0, greedy, xp.astype(noise[:, 0], greedy.dtype))

    def explorer(self) -> EpsilonGreedy:
        """Exploration by random actions with probability ε."""
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

    def networks(self, observation: Space, action: Space) -> dict[str, NetworkSpec]:
        """Spec of the network "q", the action values."""
        torso = Torso(
            observation, self.image_features, self.hidden, self.activation, self.recurrence(action), self.network
        )
        head = ActionValues(action.size, self.head_hidden, self.activation, self.dueling, self.network)
        return {"q": Network(torso, head, custom=self.q_network)}

    def optimizers(self) -> dict[str, OptimizerSpec]:
        """Adam for the network "q"."""
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
class SequenceChoices(ChoiceNetwork):
    """Hyper-parameters of algorithms that learn from sequences: R2D2's network, sequences and cadence."""

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
    """ε falls linearly, or exponentially, or each environment keeps its own (Ape-X)."""
    exploration_start: Fraction = 0.4
    """ε at the start; of a ladder, that of its first rung."""
    hidden: Annotated[tuple[int, ...], Within(1)] = ()
    """Units of hidden layers before the recurrent ones."""
    head_hidden: Annotated[tuple[int, ...], Within(1)] = (512,)
    """Units of further hidden layers, of each of a dueling network's two streams."""
    recurrent: Literal["none", "lstm", "gru"] = "lstm"
    """Layers with a memory of the episode, for what one observation does not show."""
    recurrent_size: Count = 512
    """Their units."""
    burn_in: CountOrZero = 40
    """Steps at the beginning of a sequence that only warm the memory up."""
    unroll: Count = 40
    """Steps of a sequence that are learned from."""
    overlap: CountOrZero = 40
    """Steps that a sequence shares with the next."""

    tuned: ClassVar[dict[str, Search | None]] = {"exploration_end": None, "exploration_steps": None}  # not of a ladder
