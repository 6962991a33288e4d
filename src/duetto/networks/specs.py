"""Networks as data. Both frameworks build from the same spec and start from the same numbers.

A network is composed: a `Torso` turns an observation into features, a head turns features (and perhaps an action) into
what it is for. Between them they are made of a few kinds of layers (`Stack`, convolutions, `Recurrent`), and layers are
all that the frameworks know (`torch_layers`, `jax_layers`, `numpy_layers`). `network.Network` runs them for all.

    Network(Torso(observation), Deterministic(2, hidden=(256, 256)))                       an actor
    Network(Torso(observation), Values(action=2, hidden=(256, 256)), members=2)            twin critics
    Network(Torso(observation, hidden=(64,)), (Policy(action), StateValue()), shared=False) a policy and its values

Parameters have names ("layers.0.weight") and PyTorch's layouts (a weight is (out, in)), with a leading axis for the
members of an ensemble. Names, layouts and initial values are equal in both frameworks. Batch normalisation also keeps
*running statistics* (`Network.statistics`), arrays by name beside the parameters that no optimiser moves.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Literal

from duetto.errors import UsageError
from duetto.networks.encoding import chw, convolutions, is_image, named_parts
from duetto.networks.policies import outputs
from duetto.networks.spaces import Box, Space

Activation = Literal["relu", "tanh", "elu", "silu"]
Blocks = Literal["mlp", "layer_norm", "simba"]
AllBlocks = Literal[
    "mlp", "layer_norm", "simba", "batch_norm", "batch_renorm"
]  # the last two where losses `train` them
EXPANSION = 4  # how much wider a residual block of SimBa is inside


@dataclass(frozen=True)
class Initializer:
    """How weights and biases are drawn."""

    kind: Literal["fan_in", "normal", "orthogonal"] = "fan_in"  # U(±gain/√fan_in), PyTorch's; N(0, gain²); orthogonal
    gain: float = 1.0
    final_bound: float = 0.0  # the last layer is U(±final_bound) instead, where above 0 (3e-3 in the DDPG paper)
    zero_biases: bool = False  # with orthogonal weights: biases are 0, or PyTorch's U(±1/√fan_in)


@dataclass(frozen=True)
class CustomNetwork:
    """A user's own network: one class per framework, either may be missing.

    An actor is called with a batch of observations (B, ...) and returns actions (B, A) in [-1, 1]; a critic is called
    with observations and actions and returns (B,); an action-value network returns (B, actions); a policy with its
    value function returns the policy's outputs (B, action_size), see `policies.distribution`, and values (B,); a
    squashed Gaussian policy returns means and logarithms of the std before tanh, (B, 2 A).
    Constructed as `torch(observation_space, action_size, **arguments)` and
    `jax(observation_space, action_size, key=key, **arguments)`, an `nn.Module` and an `equinox.Module`. Use the same
    attribute names in both and a checkpoint moves between them.
    """

    torch: type | None = None
    jax: type | None = None
    arguments: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise UsageError where a field is no class, and where there is no class at all."""
        for name in ("torch", "jax"):
            given = getattr(self, name)
            if given is not None and not isinstance(given, type):
                raise UsageError(
                    f"CustomNetwork({name}=...) is {given!r:.200}; it must be a class, neither an object of one nor a "
                    "function: Duetto makes the networks, one or several. What else they need goes into "
                    "arguments={...}."
                )
        if self.torch is None and self.jax is None:
            raise UsageError(
                "CustomNetwork has no class. Give CustomNetwork(torch=...), CustomNetwork(jax=...) or both."
            )
        if not isinstance(self.arguments, dict) or not all(isinstance(name, str) for name in self.arguments):
            raise UsageError(f"arguments is {self.arguments!r:.200}; it must be a dict of arguments by their names.")


@dataclass(frozen=True)
class Recurrent:
    """Layers that carry a state from step to step, so that a network sees a `windows.Window` instead of observations.

    Their input is what comes before them, the previous action (one-hot; zeros for none) and the previous reward.
    """

    kind: Literal["lstm", "gru"]
    size: int
    layers: int
    action: Space  # of the previous action
    burn_in: int = 0  # positions of a window that only warm the state up, without gradient
    learn_from_start: bool = True  # but not where an episode begins with the window
    orthogonal: bool = False  # orthogonal weights and zero biases (Andrychowicz et al., 2021) instead of U(±1/√size)

    @property
    def gates(self) -> int:
        """Rows of a layer's weights, in units of `size`."""
        return 4 if self.kind == "lstm" else 3

    def state(self) -> dict[str, tuple[int, int]]:
        """Shapes of a carry's arrays by name, without the leading batch axis: "h", and an LSTM's cells "c"."""
        return dict.fromkeys(("h", "c") if self.kind == "lstm" else ("h",), (self.layers, self.size))

    def shapes(self, inputs: int) -> dict[str, tuple[int, ...]]:
        """Shapes of all parameters by PyTorch's names, for `inputs` numbers before the previous action and reward."""
        found: dict[str, tuple[int, ...]] = {}
        width = inputs + self.action.size + 1
        for layer in range(self.layers):
            rows = self.gates * self.size
            found |= {f"weight_ih_l{layer}": (rows, width), f"weight_hh_l{layer}": (rows, self.size)}
            found |= {f"bias_ih_l{layer}": (rows,), f"bias_hh_l{layer}": (rows,)}
            width = self.size
        return found


@dataclass(frozen=True)
class Stack:
    """Linear layers one after the other: hidden ones with an activation, and perhaps a last one without.

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
    joined: int = 0  # as many further numbers join the input ...
    joins: int = 0  # ... of this linear layer
    numbered: bool = True  # False: a single layer, called by the stack's name alone

    def __post_init__(self) -> None:
        if self.blocks == "simba" and len(set(self.hidden)) > 1:
            raise UsageError(
                f"Residual blocks (network simba) are of one size; these hidden layers are {self.hidden}. "
                "Give one size, once for each block: --hidden 256 256."
            )
        if self.blocks not in ("mlp", "layer_norm") and self.joins:
            raise UsageError(
                f"With network {self.blocks} the action joins at the first layer: leave critic_action_layer at 0."
            )

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
        """Whether normalisation is over the rows of a batch."""
        return self.blocks in ("batch_norm", "batch_renorm") and bool(self.hidden)

    @cached_property
    def norms(self) -> list[int]:
        """Units of each normalisation."""
        if self.blocks == "mlp" or not self.hidden:
            return []
        if self.over_batches:
            return [self.inputs + self.joined, *self.hidden]
        return [*self.hidden, *self.hidden[-1:]] if self.blocks == "simba" else list(self.hidden)

    def layer(self, i: int) -> str:
        """The name of a linear layer."""
        return f"{self.name}.{i}" if self.numbered else self.name

    def norm(self, i: int) -> str:
        """The name of a normalisation."""
        return f"{self.name}_norms.{i}"

    @property
    def statistics(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the running statistics by name."""
        found: dict[str, tuple[int, ...]] = {}
        for i, width in enumerate(self.norms if self.over_batches else []):
            found |= {f"{self.norm(i)}.mean": (width,), f"{self.norm(i)}.variance": (width,)}
            found |= {f"{self.norm(i)}.count": ()} if self.blocks == "batch_renorm" else {}
        return found


@dataclass(frozen=True)
class Torso:
    """The part before a head: observations (B, ...) to features (B, width).

    Every image part goes through convolutions and a layer of `image_features` units, with ReLU; what comes out and the
    vector parts, side by side, go through the `hidden` layers, then through the recurrent ones.
    """

    observation: Space
    image_features: int = 512
    hidden: tuple[int, ...] = ()
    activation: Activation = "relu"
    recurrent: Recurrent | None = None  # behind the hidden layers
    blocks: Blocks = "mlp"

    @cached_property
    def images(self) -> dict[str, Box]:
        """The image parts by name; "image" where the observation is a single one."""
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
        """Shapes of the weights before the hidden layers, (out, in, height, width) of a convolution or (out, in)."""
        found: dict[str, tuple[int, ...]] = {}
        for name, image in self.images.items():
            channels, height, width = chw(image)
            for i, (filters, kernel, stride) in enumerate(convolutions(image)):
                found[f"convolutions.{name}.{i}"] = (filters, channels, kernel, kernel)
                channels, height, width = filters, (height - kernel) // stride + 1, (width - kernel) // stride + 1
            found[f"features.{name}"] = (self.image_features, channels * height * width)
        return found


# ---------------------------------------------------------------------------------------------------------- heads
@dataclass(frozen=True)
class Deterministic:
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
class SquashedGaussian:
    """A Gaussian whose samples go through tanh, features to `functional.distributions.SquashedGaussian` over (B, A).

    Means and logarithms of the std are outputs of one last layer; the latter are clipped (Haarnoja et al., 2018).
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
class Values:
    """Action values: features and actions (B, A) to (B,), of an ensemble (members, B)."""

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
class ActionValues:
    """The values (B, actions) of a choice, from features; dueling, from a state's value and the actions' advantages."""

    action: int  # how many there are to choose from
    hidden: tuple[int, ...] = ()  # of each of its streams
    activation: Activation = "relu"
    dueling: bool = False
    blocks: Blocks = "mlp"
    name: ClassVar[str] = "value"
    gain: ClassVar[float] = 1.0

    def stacks(self, width: int) -> list[Stack]:
        """The head's layers, for `width` features: one stack, or two of a dueling head."""
        ends = {"value": 1, "advantage": self.action} if self.dueling else {"advantage": self.action}
        return [Stack(name, width, self.hidden, end, self.activation, self.blocks) for name, end in ends.items()]


@dataclass(frozen=True)
class Policy:
    """A distribution over actions, from features; the action space says which.

    The logarithm of a Gaussian's std is a parameter that does not depend on the observation (Schulman et al., 2015).
    """

    space: Space
    gain: float = 1.0  # of the layer's orthogonal initial weights
    initial_log_std: float = 0.0
    name: ClassVar[str] = "policy"

    @property
    def action(self) -> int:
        """Number of outputs that make the distribution; a user's own network is constructed with it."""
        return outputs(self.space)

    @property
    def parameter(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the parameters beside layers, by name: "log_std" where actions have numbers."""
        numbers = outputs(self.space) - self.space.size  # those of the std beside the means
        return {"log_std": (numbers,)} if numbers else {}

    def stacks(self, width: int) -> list[Stack]:
        """The head's one layer, for `width` features."""
        return [Stack("policy_head", width, (), self.space.size, numbered=False)]


@dataclass(frozen=True)
class StateValue:
    """State values (B,), from features."""

    gain: float = 1.0
    action: ClassVar[int] = 1
    name: ClassVar[str] = "value"

    def stacks(self, width: int) -> list[Stack]:
        """The head's one layer, for `width` features."""
        return [Stack("value_head", width, (), 1, numbered=False)]


Head = Deterministic | SquashedGaussian | Values | ActionValues | Policy | StateValue


# ---------------------------------------------------------------------------------------------------------- networks
@dataclass(frozen=True)
class Network:
    """A spec of a torso and a head; or of several heads, on one torso or on one each. Several heads give a tuple."""

    torso: Torso
    head: Head | tuple[Head, ...]
    members: int = 0  # of an ensemble that shares the torso's recurrent layers; 0: no ensemble
    shared: bool = True  # several heads sit on one torso
    initializer: Initializer = Initializer()
    custom: CustomNetwork | None = None  # instead of all this

    def __post_init__(self) -> None:
        names = [stack.name for stacks in self.stacks for stack in stacks]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(
                f"Two stacks of these heads are called {', '.join(twice)}: they would be one and the same parameters. "
                "Give each head's stacks names of their own, or make it two networks."
            )

    @property
    def observation(self) -> Space:
        """The space of the observations that it takes."""
        return self.torso.observation

    @property
    def recurrent(self) -> Recurrent | None:
        """The recurrent layers of each torso; None for none."""
        return self.torso.recurrent

    @cached_property
    def heads(self) -> tuple[Head, ...]:
        """The heads as a tuple, also where there is one."""
        return self.head if isinstance(self.head, tuple) else (self.head,)

    @property
    def action_size(self) -> int:
        """The `action_size` for a user's own network: numbers of an action, or outputs that stand for it."""
        return self.heads[0].action

    @cached_property
    def torsos(self) -> tuple[str, ...]:
        """The names of the torsos, one for all heads or one for each."""
        return ("torso",) if self.shared else tuple(f"{head.name}_torso" for head in self.heads)

    @cached_property
    def statistics(self) -> dict[str, tuple[int, ...]]:
        """Shapes of its batch normalisation's running statistics by name: kept beside the parameters, not learned."""
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
        """Names of the arrays that make the outputs, which are float32 in every precision."""
        last = [stack.layer(len(stack.layers) - 1) for stacks in self.stacks for stack in stacks if stack.outputs]
        return frozenset([f"{name}.{part}" for name in last for part in ("weight", "bias")] + ["log_std"])

    def carry(self) -> dict[str, tuple[int, int]]:
        """Shapes of the carry's arrays by name, without the leading batch axis; none without recurrence."""
        state = self.recurrent.state() if self.recurrent else {}
        if len(self.heads) == 1:
            return state
        return {f"{torso}/{name}": shape for torso in self.torsos for name, shape in state.items()}


@dataclass(frozen=True)
class Parameter:
    """A number, or an array of numbers, that is learned as it is: losses see the array itself."""

    shape: tuple[int, ...] = ()
    initial: float = 0.0
    custom: ClassVar[None] = None
    recurrent: ClassVar[None] = None
    members: ClassVar[int] = 0
    statistics: ClassVar[dict[str, tuple[int, ...]]] = {}

    def carry(self) -> dict[str, tuple[int, int]]:
        """An empty dict: a parameter carries nothing."""
        return {}


NetworkSpec = Network | Parameter
