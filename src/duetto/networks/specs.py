"""Networks as data. PyTorch and JAX build the same network from a spec, with the same initial values.

A `Torso` turns an observation into features. A head turns features, and in critics also an action, into outputs. Both
consist of the layers in `layers`, a torso also of convolutions. Each framework implements only the operations of these
layers (`torch_layers`, `jax_layers`, `numpy_layers`). `network.Network` computes all networks.

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
    """How initial weights and biases are drawn."""

    kind: Literal["fan_in", "normal", "orthogonal"] = "fan_in"  # fan_in: U(±gain/√fan_in); normal: N(0, gain²)
    gain: float = 1.0
    final_bound: float = 0.0  # above 0: the last layer is U(±final_bound) instead (3e-3 in the DDPG paper)
    zero_biases: bool = False  # with orthogonal weights: biases are 0 instead of PyTorch's U(±1/√fan_in)


@dataclass(frozen=True)
class CustomNetwork:
    """A custom network: a PyTorch class, a JAX class, or both.

    Duetto calls the network with observations (B, ...), and critics also with actions (B, A). The network must return

        actor                         actions (B, A) in [-1, 1]
        critic                        values (B,), or numbers (B, n) that describe distributions
        action values                 (B, actions)
        policy and value function     the policy's outputs (B, action_size), see `heads.distribution`, and values (B,)
        squashed Gaussian policy      means, then log-stds, of the Gaussian before tanh: (B, 2 A)

    `torch` is a subclass of `nn.Module`, constructed as `torch(observation_space, action_size, **arguments)`. `jax` is
    a subclass of `equinox.Module`, constructed as `jax(observation_space, action_size, key=key, **arguments)`. If both
    classes have the same attribute names, a checkpoint saved in one framework loads in the other.
    """

    torch: type | None = None
    jax: type | None = None
    arguments: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise UsageError if `torch` or `jax` is not a class, or if both are missing."""
        classes = [kind for kind in (self.torch, self.jax) if kind is not None]
        if not classes or not all(isinstance(kind, type) for kind in classes):
            raise UsageError(
                f"CustomNetwork has {', '.join(map(repr, classes)) or 'no class'}; give classes, torch=..., jax=... or "
                "both. Duetto constructs the networks; put further arguments into arguments={...}."
            )


@dataclass(frozen=True)
class Torso:
    """The part of a network before its heads. It turns observations (B, ...) into features (B, width).

    Each image goes through convolutions and a linear layer of `image_features` units, all with ReLU. The outputs of all
    images and the other parts of the observation are concatenated; then come the `hidden` and the recurrent layers.
    """

    observation: Space
    image_features: int = 512
    hidden: tuple[int, ...] = ()
    activation: Activation = "relu"
    recurrent: RecurrentSpec | None = None  # after the hidden layers
    blocks: Blocks = "mlp"

    @cached_property
    def images(self) -> dict[str, Box]:
        """The observation's image parts by name. An observation that is a single image has the name "image"."""
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
        """Return the weight shapes of the layers for images: (out, in, height, width), or (out, in) if linear."""
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
    """A torso and one head, or several heads, whose outputs form a tuple. `shared`: whether the heads share a torso."""

    torso: Torso
    head: Head | tuple[Head, ...]
    members: int = 0  # size of an ensemble of heads with a common torso; 0: no ensemble
    shared: bool = True  # all heads share one torso; False: each head has its own torso
    initializer: Initializer = Initializer()
    custom: CustomNetwork | None = None  # replaces torso and heads
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
        """The heads as a tuple, even if there is only one."""
        return self.head if isinstance(self.head, tuple) else (self.head,)

    @property
    def action_size(self) -> int:
        """The `action_size` that custom networks are built with: the size of an action, or of the policy's outputs."""
        return self.heads[0].action_size

    @cached_property
    def torsos(self) -> tuple[str, ...]:
        """The names of the torsos: one shared by all heads, or one per head."""
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

    @property
    def projected_stacks(self) -> list[Stack]:
        """The layers whose weights have unit norm."""
        return self.head_stacks if self.projected else []

    @cached_property
    def exact(self) -> frozenset[str]:
        """Names of arrays that bf16 leaves in float32: of last layers and batch norms, and heads' `parameters`."""
        norms = [stack.norm(i) for stack in self.head_stacks if stack.over_batches for i in range(len(stack.norms))]
        last = [stack.layer(len(stack.layers) - 1) for stack in self.head_stacks if stack.outputs]
        exact = [f"{name}.{part}" for name in last + norms for part in ("weight", "bias")]
        return frozenset(exact + [name for head in self.heads for name in head.parameters])

    def mask(self, outputs: Any, mask: Any) -> Any:
        """Return the heads' `outputs` with the action mask applied. The mask has no ensemble axis; None: no mask."""
        if mask is None:
            return outputs
        if not isinstance(self.head, tuple):
            return self.head.mask(outputs, mask)
        return tuple(head.mask(output, mask) for head, output in zip(self.heads, outputs, strict=True))

    def carry(self) -> dict[str, tuple[int, int]]:
        """Return the shapes of the hidden states by name, without the batch axis; empty if feedforward."""
        state = self.recurrent.state() if self.recurrent else {}
        if len(self.heads) == 1:
            return state
        return {f"{torso}/{name}": shape for torso in self.torsos for name, shape in state.items()}


@dataclass(frozen=True)
class ParameterSpec:
    """A learned array that belongs to no network, such as SAC's log α; losses get it as an array."""

    shape: tuple[int, ...] = ()
    initial: float = 0.0
    custom: ClassVar[None] = None
    recurrent: ClassVar[None] = None
    members: ClassVar[int] = 0
    statistics: ClassVar[dict[str, tuple[int, ...]]] = {}
    projected_stacks: ClassVar[list[Stack]] = []


AnyNetworkSpec = NetworkSpec | ParameterSpec
