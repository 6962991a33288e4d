"""Networks as data. Both frameworks build from the same spec and start from the same numbers.

A `Torso` turns an observation into features, a head turns features (and for critics an action) into outputs. Both
consist of a few kinds of layers (`layers`, convolutions), whose operations are the only part that frameworks implement
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
from typing import Any, ClassVar, Literal

from duetto.errors import UsageError
from duetto.networks.heads import Head
from duetto.networks.layers import Activation, Blocks, RecurrentSpec, Stack
from duetto.networks.preprocessing import chw, convolutions, is_image, named_parts
from duetto.networks.spaces import Box, Space


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
    with its value function returns the policy's outputs (B, action_size), see `heads.distribution`,
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
        given = [kind for kind in (self.torch, self.jax) if kind is not None]
        if not given or not all(isinstance(kind, type) for kind in given):
            raise UsageError(
                f"CustomNetwork has {', '.join(map(repr, given)) or 'no class'}; give classes, torch=..., jax=... or "
                "both. Duetto constructs the networks; put further arguments into arguments={...}."
            )


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


@dataclass(frozen=True)
class NetworkSpec:
    """A torso and a head, or several heads on one torso or on one each. Several heads return a tuple."""

    torso: Torso
    head: Head | tuple[Head, ...]
    members: int = 0  # of an ensemble that shares the torso; 0: no ensemble
    shared: bool = True  # several heads share one torso
    initializer: Initializer = Initializer()
    custom: CustomNetwork | None = None  # instead of all this
    projected: bool = False  # the heads' weights have unit norm, see `layers.projected`

    def __post_init__(self) -> None:
        names = [stack.name for stack in self.head_stacks]
        if len(set(names)) < len(names):
            raise ValueError(f"Two stacks of these heads share a name: {', '.join(names)}. Rename one of them.")

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
        return self.heads[0].action_size

    @cached_property
    def torsos(self) -> tuple[str, ...]:
        """The names of the torsos, one for all heads or one each."""
        return ("torso",) if self.shared else tuple(f"{head.name}_torso" for head in self.heads)

    @cached_property
    def statistics(self) -> dict[str, tuple[int, ...]]:
        """Shapes of batch normalization's running statistics by name."""
        lead = (self.members,) if self.members else ()
        return {name: (*lead, *shape) for stack in self.head_stacks for name, shape in stack.statistics.items()}

    @cached_property
    def stacks(self) -> tuple[list[Stack], ...]:
        """The layers of each head."""
        return tuple(head.stacks(self.torso.width) for head in self.heads)

    @property
    def head_stacks(self) -> list[Stack]:
        """The layers of all heads."""
        return [stack for stacks in self.stacks for stack in stacks]

    @cached_property
    def exact(self) -> frozenset[str]:
        """Names of arrays that are float32 in every precision: the output layers' and batch normalization's."""
        norms = [stack.norm(i) for stack in self.head_stacks if stack.over_batches for i in range(len(stack.norms))]
        last = [stack.layer(len(stack.layers) - 1) for stack in self.head_stacks if stack.outputs]
        exact = [f"{name}.{part}" for name in last + norms for part in ("weight", "bias")]
        return frozenset(exact + [name for head in self.heads for name in head.parameters])

    def mask(self, outputs: Any, mask: Any) -> Any:
        """Apply a mask to the heads' results; it has their axes except an ensemble's. None changes nothing."""
        if mask is None:
            return outputs
        if not isinstance(self.head, tuple):
            return self.head.mask(outputs, mask)
        return tuple(head.mask(output, mask) for head, output in zip(self.heads, outputs, strict=True))

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
    projected: ClassVar[bool] = False

    def carry(self) -> dict[str, tuple[int, int]]:
        """Return an empty dict."""
        return {}


AnyNetworkSpec = NetworkSpec | ParameterSpec
