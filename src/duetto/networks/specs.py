"""What a network is, in data. Both frameworks build from the same spec and start from the same numbers.

A built network holds parameters by name ("layers.0.weight"), in PyTorch's layouts (a weight is (out, in)), with a
leading axis for the members of an ensemble. Names, layouts and initial values are equal in both frameworks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

from duetto.networks.encoding import chw, convolutions, is_image, named_parts
from duetto.networks.policies import outputs
from duetto.networks.spaces import Box, Space

Activation = Literal["relu", "tanh", "elu", "silu"]


@dataclass(frozen=True)
class Initializer:
    """How weights and biases are drawn."""

    kind: Literal["fan_in", "normal"] = "fan_in"  # U(±gain/√fan_in), PyTorch's default for gain 1; or N(0, gain²)
    gain: float = 1.0
    final_bound: float = 0.0  # the last layer is U(±final_bound) instead, where above 0 (3e-3 in the DDPG paper)


@dataclass(frozen=True)
class CustomNetwork:
    """A user's own network: one class per framework, either may be missing.

    An actor is called with a batch of observations (B, ...) and returns actions (B, A) in [-1, 1]; a critic is called
    with observations and actions and returns (B,); an action-value network returns (B, actions); a policy with its
    value function returns the policy's outputs (B, action_size), see `policies.distribution`, and values (B,).
    Constructed as `torch(observation_space, action_size, **arguments)` and
    `jax(observation_space, action_size, key=key, **arguments)`, an `nn.Module` and an `equinox.Module`. Use the same
    attribute names in both and a checkpoint moves between them.
    """

    torch: type | None = None
    jax: type | None = None
    arguments: dict[str, Any] = field(default_factory=dict)


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
        """The arrays of a carry by name, without the leading batch axis: "h", and an LSTM's cells "c"."""
        return dict.fromkeys(("h", "c") if self.kind == "lstm" else ("h",), (self.layers, self.size))

    def shapes(self, inputs: int) -> dict[str, tuple[int, ...]]:
        """Every parameter by PyTorch's name of it, for `inputs` numbers before the previous action and reward."""
        found: dict[str, tuple[int, ...]] = {}
        width = inputs + self.action.size + 1
        for layer in range(self.layers):
            rows = self.gates * self.size
            found |= {f"weight_ih_l{layer}": (rows, width), f"weight_hh_l{layer}": (rows, self.size)}
            found |= {f"bias_ih_l{layer}": (rows,), f"bias_hh_l{layer}": (rows,)}
            width = self.size
        return found


@dataclass(frozen=True)
class Actor:
    """A deterministic policy μ: observation (B, ...) to action (B, A) in [-1, 1], a multilayer perceptron and tanh."""

    observation: Space
    action_size: int
    hidden: tuple[int, ...]
    activation: Activation
    initializer: Initializer
    custom: CustomNetwork | None = None
    recurrent: Recurrent | None = None  # before the first layer
    members = 0  # not an ensemble

    @property
    def layers(self) -> list[tuple[int, int]]:
        """(inputs, outputs) of each linear layer."""
        sizes = [self.recurrent.size if self.recurrent else self.observation.size, *self.hidden, self.action_size]
        return list(pairwise(sizes))


@dataclass(frozen=True)
class Critic:
    """An ensemble of action-value functions: observation (B, ...) and action (B, A) to (members, B)."""

    observation: Space
    action_size: int
    hidden: tuple[int, ...]
    activation: Activation
    initializer: Initializer
    members: int
    action_layer: int = 0  # the linear layer at which the action joins; 1 in the DDPG paper
    custom: CustomNetwork | None = None
    recurrent: Recurrent | None = None  # of all members together, before the first layer; the action joins behind it

    @property
    def layers(self) -> list[tuple[int, int]]:
        """(inputs, outputs) of each linear layer."""
        sizes = [self.recurrent.size if self.recurrent else self.observation.size, *self.hidden, 1]
        pairs = list(pairwise(sizes))
        inputs, outputs = pairs[self.action_layer]
        pairs[self.action_layer] = (inputs + self.action_size, outputs)
        return pairs


@dataclass(frozen=True)
class Torso:
    """Observations (B, ...) to features (B, width), what comes before a head.

    Every image part goes through convolutions and a layer of `image_features` units, with ReLU; what comes out and the
    vector parts, side by side, go through the `hidden` layers.
    """

    observation: Space
    image_features: int
    hidden: tuple[int, ...]
    activation: Activation
    recurrent: Recurrent | None = None  # behind the hidden layers

    @property
    def images(self) -> dict[str, Box]:
        """The image parts by name; "image" where the observation is a single one."""
        return {name: part for name, part in named_parts(self.observation) if isinstance(part, Box) and part.is_image}

    @property
    def layers(self) -> list[tuple[int, int]]:
        """(inputs, outputs) of each hidden layer."""
        return list(pairwise([self._encoded, *self.hidden]))

    @property
    def width(self) -> int:
        """Number of features."""
        return self.recurrent.size if self.recurrent else self.unrolled

    @property
    def unrolled(self) -> int:
        """Number of features of each observation on its own."""
        return self.hidden[-1] if self.hidden else self._encoded

    @property
    def _encoded(self) -> int:
        vector = sum(part.size for _, part in named_parts(self.observation) if not is_image(part))
        return vector + self.image_features * len(self.images)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Every weight's shape by its layer's name: (out, in), or (out, in, height, width) of a convolution."""
        found: dict[str, tuple[int, ...]] = {}
        for name, image in self.images.items():
            channels, height, width = chw(image)
            for i, (filters, kernel, stride) in enumerate(convolutions(image)):
                found[f"convolutions.{name}.{i}"] = (filters, channels, kernel, kernel)
                channels, height, width = filters, (height - kernel) // stride + 1, (width - kernel) // stride + 1
            found[f"features.{name}"] = (self.image_features, channels * height * width)
        return found | {f"layers.{i}": (outputs, inputs) for i, (inputs, outputs) in enumerate(self.layers)}


@dataclass(frozen=True)
class ActorCritic:
    """A policy and a value function: observation (B, ...) to a distribution over actions and to values (B,).

    With `shared` both heads sit on one torso, without each has its own. The logarithm of a Gaussian's std is a
    parameter that does not depend on the observation (Schulman et al., 2015).
    """

    torso: Torso
    action: Space
    shared: bool
    policy_gain: float  # of the policy head's orthogonal initial weights
    zero_biases: bool  # or PyTorch's default, U(±1/√inputs)
    initial_log_std: float
    custom: CustomNetwork | None = None
    members = 0  # not an ensemble

    @property
    def observation(self) -> Space:
        """What it takes."""
        return self.torso.observation

    @property
    def action_size(self) -> int:
        """How many numbers the policy head gives; also what a user's own network is constructed with."""
        return outputs(self.action)

    @property
    def head(self) -> int:
        """Outputs of the policy head's layer: all, but a Gaussian's std."""
        return self.action.size

    @property
    def recurrent(self) -> Recurrent | None:
        """Of each torso."""
        return self.torso.recurrent

    @property
    def torsos(self) -> tuple[str, ...]:
        """The names under which the torsos' parameters are found."""
        return ("torso",) if self.shared else ("policy_torso", "value_torso")


@dataclass(frozen=True)
class QNetwork:
    """Action values: observation (B, ...) to (B, actions). Dueling, a state's value and the actions' advantages."""

    torso: Torso
    actions: int
    head_hidden: tuple[int, ...]  # units of the hidden layers of the head, or of each of its two streams
    dueling: bool
    custom: CustomNetwork | None = None
    members = 0  # not an ensemble

    @property
    def observation(self) -> Space:
        """What it takes."""
        return self.torso.observation

    @property
    def action_size(self) -> int:
        """How many numbers it gives; what a user's own network is constructed with."""
        return self.actions

    @property
    def recurrent(self) -> Recurrent | None:
        """The torso's."""
        return self.torso.recurrent

    @property
    def streams(self) -> dict[str, list[tuple[int, int]]]:
        """(inputs, outputs) of the linear layers of each stream."""
        ends = {"value": 1, "advantage": self.actions} if self.dueling else {"advantage": self.actions}
        return {name: list(pairwise([self.torso.width, *self.head_hidden, end])) for name, end in ends.items()}


NetworkSpec = Actor | Critic | ActorCritic | QNetwork


def carry_shapes(spec: NetworkSpec) -> dict[str, tuple[int, int]]:
    """The arrays of a network's carry by name, without the leading batch axis; none without recurrence."""
    state = spec.recurrent.state() if spec.recurrent else {}
    if isinstance(spec, ActorCritic):
        return {f"{torso}/{name}": shape for torso in spec.torsos for name, shape in state.items()}
    return state
