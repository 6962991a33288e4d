"""Networks as data. Both frameworks build from the same spec and start from the same numbers.

A `Torso` turns an observation into features, a head turns features (and for critics an action) into outputs. Both
consist of a few kinds of layers (`Stack`, convolutions, `RecurrentSpec`), the only part that frameworks implement
(`torch_layers`, `jax_layers`, `numpy_layers`). `network.Network` computes all networks.

    an actor                 NetworkSpec(Torso(observation), DeterministicHead(2, hidden=(256, 256)))
    twin critics             NetworkSpec(Torso(observation), CriticHead(action=2, hidden=(256, 256)), members=2)
    a policy and its values  NetworkSpec(Torso(observation), (PolicyHead(action), StateValueHead()), shared=False)

Parameters have names ("layers.0.weight") and PyTorch's layouts (a weight is (out, in)), with a leading axis for the
members of an ensemble. Names, layouts and initial values are equal in both frameworks. Batch normalization also has
*running statistics* (`NetworkSpec.statistics`), arrays that no optimizer changes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Literal

from duetto.errors import UsageError
from duetto.networks.action_distributions import num_outputs
from duetto.networks.preprocessing import chw, convolutions, is_image, named_parts
from duetto.networks.spaces import Box, Space

Activation = Literal["relu", "tanh", "elu", "silu"]
Blocks = Literal["mlp", "layer_norm", "simba"]
AllBlocks = Literal["mlp", "layer_norm", "simba", "batch_norm", "batch_renorm"]  # the last two need calls with `train`
EXPANSION = 4  # inner width of SimBa's residual blocks, in units of their width


@dataclass(frozen=True)
class Initializer:
    """How weights and biases are drawn."""

    kind: Literal["fan_in", "normal", "orthogonal"] = "fan_in"  # U(±gain/√fan_in), PyTorch's; N(0, gain²); orthogonal
    gain: float = 1.0
    final_bound: float = 0.0  # above 0: the last layer is U(±final_bound) instead (3e-3 in the DDPG paper)
    zero_biases: bool = False  # with orthogonal weights: biases are 0, or PyTorch's U(±1/√fan_in)


@dataclass(frozen=True)
class CustomNetwork:
    """A custom network: one class per framework; one may be missing.

    An actor is called with a batch of observations (B, ...) and returns actions (B, A) in [-1, 1]; a critic is
    called with observations and actions and returns (B,); an action-value network returns (B, actions); a policy
    with its value function returns the policy's outputs (B, action_size), see `action_distributions.distribution`,
    and values (B,); a squashed Gaussian policy returns means and logarithms of the std before tanh, (B, 2 A).
    Constructed as `torch(observation_space, action_size, **arguments)` and
    `jax(observation_space, action_size, key=key, **arguments)`, an `nn.Module` and an `equinox.Module`. Use the same
    attribute names in both and a checkpoint moves between them.
    """

    torch: type | None = None
    jax: type | None = None
    arguments: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise UsageError if a field is not a class, or if both are missing."""
        for name, kind in (("torch", self.torch), ("jax", self.jax)):
            if kind is not None and not isinstance(kind, type):
                raise UsageError(
                    f"CustomNetwork({name}=...) is {kind!r:.200}; it must be a class. Duetto constructs the networks; "
                    "put further arguments into arguments={...}."
                )
        if self.torch is None and self.jax is None:
            raise UsageError("CustomNetwork has no class. Give torch=..., jax=... or both.")
        if not isinstance(self.arguments, dict) or not all(isinstance(name, str) for name in self.arguments):
            raise UsageError(f"arguments is {self.arguments!r:.200}; it must be a dict of arguments by their names.")


@dataclass(frozen=True)
class RecurrentSpec:
    """Recurrent layers; the network's input is a `SequenceInput` instead of observations.

    The layers' inputs are features, the previous action (one-hot; zeros for none) and the previous reward.
    """

    kind: Literal["lstm", "gru"]
    size: int
    layers: int
    action: Space  # of the previous action
    burn_in: int = 0  # positions that only warm the state up, without gradient
    learn_from_start: bool = True  # no burn-in where an episode starts at position 0
    orthogonal: bool = False  # orthogonal weights and zero biases (Andrychowicz et al., 2021) instead of U(±1/√size)

    @property
    def gates(self) -> int:
        """Rows of a layer's weights in units of `size`."""
        return 4 if self.kind == "lstm" else 3

    def state(self) -> dict[str, tuple[int, int]]:
        """Return the shapes of the carry's arrays by name without the batch axis: "h", and an LSTM's cells "c"."""
        return dict.fromkeys(("h", "c") if self.kind == "lstm" else ("h",), (self.layers, self.size))

    def shapes(self, inputs: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of all parameters by PyTorch's names, for `inputs` features."""
        shapes: dict[str, tuple[int, ...]] = {}
        width = inputs + self.action.size + 1
        for layer in range(self.layers):
            rows = self.gates * self.size
            shapes |= {f"weight_ih_l{layer}": (rows, width), f"weight_hh_l{layer}": (rows, self.size)}
            shapes |= {f"bias_ih_l{layer}": (rows,), f"bias_hh_l{layer}": (rows,)}
            width = self.size
        return shapes


@dataclass(frozen=True)
class Stack:
    """A sequence of linear layers: hidden ones with an activation, and an optional last one without.

    mlp          x → σ(W x) → ... → W x
    layer_norm   x → σ(norm(W x)) → ... → W x
    simba        x → W x → x + W' relu(W norm(x)) → ... → norm(x) → W x      W is 4 times as wide as x
                 (Lee et al., 2025, arXiv:2410.09754, section 4; one residual block for each hidden size, all equal)
    batch_norm   x → norm(x) → norm(σ(W x)) → ... → W x      over the rows of a batch; see `batch_norm`
    batch_renorm the same, corrected towards the running statistics
    """

    name: str
    inputs: int
    hidden: tuple[int, ...] = ()
    outputs: int = 0  # of the last layer; 0 for none
    activation: Activation = "relu"
    blocks: AllBlocks = "mlp"
    joined: int = 0  # size of the action that joins the input ...
    joins: int = 0  # ... of this linear layer
    numbered: bool = True  # False: a single layer with the stack's name

    def __post_init__(self) -> None:
        if self.blocks == "simba" and len(set(self.hidden)) > 1:
            raise UsageError(
                f"With network simba all hidden layers have one size; hidden is {self.hidden}. Give one size, once for "
                "each block: --hidden 256 256."
            )
        if self.blocks not in ("mlp", "layer_norm") and self.joins:
            raise UsageError(f"critic_action_layer is {self.joins}; with network {self.blocks} it must be 0.")

    @property
    def width(self) -> int:
        """Number of outputs."""
        return self.outputs or (self.hidden[-1] if self.hidden else self.inputs)

    @cached_property
    def layers(self) -> list[tuple[int, int]]:
        """(inputs, outputs) of each linear layer."""
        sizes = [self.inputs, *self.hidden]
        if self.blocks == "simba" and self.hidden:
            width = self.hidden[0]
            pairs = [(self.inputs, width), *[(width, EXPANSION * width), (EXPANSION * width, width)] * len(self.hidden)]
        else:
            pairs = list(pairwise(sizes))
        if self.outputs:
            pairs.append((sizes[-1], self.outputs))
        if self.joined:
            inputs, width = pairs[self.joins]
            pairs[self.joins] = (inputs + self.joined, width)
        return pairs

    @cached_property
    def over_batches(self) -> bool:
        """Whether normalization is over the rows of a batch instead of features."""
        return self.blocks in ("batch_norm", "batch_renorm") and bool(self.hidden)

    @cached_property
    def norms(self) -> list[int]:
        """Units of each normalization."""
        if self.blocks == "mlp" or not self.hidden:
            return []
        if self.over_batches:
            return [self.inputs + self.joined, *self.hidden]
        return [*self.hidden, *self.hidden[-1:]] if self.blocks == "simba" else list(self.hidden)

    def layer(self, i: int) -> str:
        """The name of a linear layer."""
        return f"{self.name}.{i}" if self.numbered else self.name

    def norm(self, i: int) -> str:
        """The name of a normalization."""
        return f"{self.name}_norms.{i}"

    @property
    def statistics(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the running statistics by name."""
        shapes: dict[str, tuple[int, ...]] = {}
        for i, width in enumerate(self.norms if self.over_batches else []):
            shapes |= {f"{self.norm(i)}.mean": (width,), f"{self.norm(i)}.variance": (width,)}
            shapes |= {f"{self.norm(i)}.count": ()} if self.blocks == "batch_renorm" else {}
        return shapes


@dataclass(frozen=True)
class Torso:
    """The part before a head: observations (B, ...) to features (B, width).

    Each image goes through convolutions and a layer of `image_features` units, with ReLU. The results are concatenated
    with the vector parts, and go through the `hidden` layers, then through the recurrent ones.
    """

    observation: Space
    image_features: int = 512
    hidden: tuple[int, ...] = ()
    activation: Activation = "relu"
    recurrent: RecurrentSpec | None = None  # after the hidden layers
    blocks: Blocks = "mlp"

    @cached_property
    def images(self) -> dict[str, Box]:
        """The image parts by name; "image" if the observation is a single image."""
        return {name: part for name, part in named_parts(self.observation) if isinstance(part, Box) and part.is_image}

    @cached_property
    def stack(self) -> Stack:
        """The hidden layers."""
        vector = sum(part.size for _, part in named_parts(self.observation) if not is_image(part))
        inputs = vector + self.image_features * len(self.images)
        return Stack("layers", inputs, self.hidden, 0, self.activation, self.blocks)

    @property
    def width(self) -> int:
        """Number of features."""
        return self.recurrent.size if self.recurrent else self.stack.width

    def convolutions(self) -> dict[str, tuple[int, ...]]:
        """Return the image layers' weight shapes: convolutions (out, in, height, width), linear (out, in)."""
        shapes: dict[str, tuple[int, ...]] = {}
        for name, image in self.images.items():
            channels, height, width = chw(image)
            for i, (filters, kernel, stride) in enumerate(convolutions(image)):
                shapes[f"convolutions.{name}.{i}"] = (filters, channels, kernel, kernel)
                channels, height, width = filters, (height - kernel) // stride + 1, (width - kernel) // stride + 1
            shapes[f"features.{name}"] = (self.image_features, channels * height * width)
        return shapes


# ---------------------------------------------------------------------------------------------------------- heads
@dataclass(frozen=True)
class DeterministicHead:
    """A deterministic policy μ: features to actions (B, A) in [-1, 1], by tanh."""

    action: int  # A
    hidden: tuple[int, ...] = ()
    activation: Activation = "relu"
    blocks: AllBlocks = "mlp"
    name: ClassVar[str] = "action"
    gain: ClassVar[float] = 1.0

    def stacks(self, width: int) -> list[Stack]:
        """The head's layers, for `width` features."""
        return [Stack("layers", width, self.hidden, self.action, self.activation, self.blocks)]


@dataclass(frozen=True)
class SquashedGaussianHead:
    """A Gaussian policy with tanh: features to `functional.distributions.SquashedGaussian` over actions (B, A).

    Means and log-stds are outputs of one last layer; log-stds are clipped (Haarnoja et al., 2018).
    """

    action: int  # A
    hidden: tuple[int, ...] = ()
    activation: Activation = "relu"
    blocks: AllBlocks = "mlp"
    log_std: tuple[float, float] = (-20.0, 2.0)  # the range
    name: ClassVar[str] = "policy"
    gain: ClassVar[float] = 1.0

    def stacks(self, width: int) -> list[Stack]:
        """The head's layers, for `width` features."""
        return [Stack("layers", width, self.hidden, 2 * self.action, self.activation, self.blocks)]


@dataclass(frozen=True)
class CriticHead:
    """A critic: features and actions (B, A) to values (B,), an ensemble's (members, B)."""

    action: int  # A
    hidden: tuple[int, ...] = ()
    activation: Activation = "relu"
    blocks: AllBlocks = "mlp"
    joins: int = 0  # the linear layer at which the action joins; 1 in the DDPG paper
    name: ClassVar[str] = "value"
    gain: ClassVar[float] = 1.0

    def stacks(self, width: int) -> list[Stack]:
        """The head's layers, for `width` features."""
        return [Stack("layers", width, self.hidden, 1, self.activation, self.blocks, self.action, self.joins)]


@dataclass(frozen=True)
class ActionValueHead:
    """Values (B, actions) of discrete actions; dueling ones from a state's value and the actions' advantages."""

    action: int  # number of actions
    hidden: tuple[int, ...] = ()  # of each stream
    activation: Activation = "relu"
    dueling: bool = False
    blocks: Blocks = "mlp"
    name: ClassVar[str] = "value"
    gain: ClassVar[float] = 1.0

    def stacks(self, width: int) -> list[Stack]:
        """The head's layers, for `width` features: one stack, two if dueling."""
        ends = {"value": 1, "advantage": self.action} if self.dueling else {"advantage": self.action}
        return [Stack(name, width, self.hidden, end, self.activation, self.blocks) for name, end in ends.items()]


@dataclass(frozen=True)
class PolicyHead:
    """A policy: features to a distribution over actions, whose kind depends on the action space.

    A Gaussian's log-std is a parameter that does not depend on the observation (Schulman et al., 2015).
    """

    space: Space
    gain: float = 1.0  # of the layer's orthogonal initial weights
    initial_log_std: float = 0.0
    name: ClassVar[str] = "policy"

    @property
    def action(self) -> int:
        """Number of outputs that parameterize the distribution; a custom network's `action_size`."""
        return num_outputs(self.space)

    @property
    def parameter(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the parameters outside of layers, by name: "log_std" if the actions contain a Box."""
        numbers = num_outputs(self.space) - self.space.size  # one for each mean
        return {"log_std": (numbers,)} if numbers else {}

    def stacks(self, width: int) -> list[Stack]:
        """The head's one layer, for `width` features."""
        return [Stack("policy_head", width, (), self.space.size, numbered=False)]


@dataclass(frozen=True)
class StateValueHead:
    """A value function: features to state values (B,)."""

    gain: float = 1.0
    action: ClassVar[int] = 1
    name: ClassVar[str] = "value"

    def stacks(self, width: int) -> list[Stack]:
        """The head's one layer, for `width` features."""
        return [Stack("value_head", width, (), 1, numbered=False)]


Head = DeterministicHead | SquashedGaussianHead | CriticHead | ActionValueHead | PolicyHead | StateValueHead


# ---------------------------------------------------------------------------------------------------------- networks
@dataclass(frozen=True)
class NetworkSpec:
    """A torso and a head, or several heads on one torso or on one each. Several heads return a tuple."""

    torso: Torso
    head: Head | tuple[Head, ...]
    members: int = 0  # of an ensemble that shares the torso; 0: no ensemble
    shared: bool = True  # several heads share one torso
    initializer: Initializer = Initializer()
    custom: CustomNetwork | None = None  # instead of all this

    def __post_init__(self) -> None:
        names = [stack.name for stacks in self.stacks for stack in stacks]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(
                f"Two stacks of these heads have the name {', '.join(twice)}, so they would share parameters. Rename "
                "one, or make two networks."
            )

    @property
    def observation(self) -> Space:
        """The observation space."""
        return self.torso.observation

    @property
    def recurrent(self) -> RecurrentSpec | None:
        """The recurrent layers of each torso; None if feedforward."""
        return self.torso.recurrent

    @cached_property
    def heads(self) -> tuple[Head, ...]:
        """The heads as a tuple, also a single one."""
        return self.head if isinstance(self.head, tuple) else (self.head,)

    @property
    def action_size(self) -> int:
        """The `action_size` of a custom network: size of an action, or of the policy's outputs."""
        return self.heads[0].action

    @cached_property
    def torsos(self) -> tuple[str, ...]:
        """The names of the torsos, one for all heads or one each."""
        return ("torso",) if self.shared else tuple(f"{head.name}_torso" for head in self.heads)

    @cached_property
    def statistics(self) -> dict[str, tuple[int, ...]]:
        """Shapes of batch normalization's running statistics by name."""
        lead = (self.members,) if self.members else ()
        return {
            name: (*lead, *shape)
            for stacks in self.stacks
            for stack in stacks
            for name, shape in stack.statistics.items()
        }

    @cached_property
    def stacks(self) -> tuple[list[Stack], ...]:
        """The layers of each head."""
        return tuple(head.stacks(self.torso.width) for head in self.heads)

    @cached_property
    def exact(self) -> frozenset[str]:
        """Names of the output layers' arrays, which are float32 in every precision."""
        last = [stack.layer(len(stack.layers) - 1) for stacks in self.stacks for stack in stacks if stack.outputs]
        return frozenset([f"{name}.{part}" for name in last for part in ("weight", "bias")] + ["log_std"])

    def carry(self) -> dict[str, tuple[int, int]]:
        """Return the shapes of the carry's arrays by name without the batch axis; empty if feedforward."""
        state = self.recurrent.state() if self.recurrent else {}
        if len(self.heads) == 1:
            return state
        return {f"{torso}/{name}": shape for torso in self.torsos for name, shape in state.items()}


@dataclass(frozen=True)
class ParameterSpec:
    """A learned array without a network; losses get the array itself."""

    shape: tuple[int, ...] = ()
    initial: float = 0.0
    custom: ClassVar[None] = None
    recurrent: ClassVar[None] = None
    members: ClassVar[int] = 0
    statistics: ClassVar[dict[str, tuple[int, ...]]] = {}

    def carry(self) -> dict[str, tuple[int, int]]:
        """Return an empty dict."""
        return {}


AnyNetworkSpec = NetworkSpec | ParameterSpec
