"""What a network is, in data. Both frameworks build from the same spec and start from the same numbers.

A built network holds parameters by name ("layers.0.weight"), in PyTorch's layouts (a weight is (out, in)), with a
leading axis for the members of an ensemble. Names, layouts and initial values are equal in both frameworks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from duetto.networks.spaces import Space

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
    with observations and actions and returns (B,). Constructed as `torch(observation_space, action_size, **arguments)`
    and `jax(observation_space, action_size, key=key, **arguments)`, an `nn.Module` and an `equinox.Module`. Use the
    same attribute names in both and a checkpoint moves between them.
    """

    torch: type | None = None
    jax: type | None = None
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Actor:
    """A deterministic policy μ: observation (B, ...) to action (B, A) in [-1, 1], a multilayer perceptron and tanh."""

    observation: Space
    action_size: int
    hidden: tuple[int, ...]
    activation: Activation
    initializer: Initializer
    custom: CustomNetwork | None = None
    members = 0  # not an ensemble

    @property
    def layers(self) -> list[tuple[int, int]]:
        """(inputs, outputs) of each linear layer."""
        sizes = [self.observation.size, *self.hidden, self.action_size]
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

    @property
    def layers(self) -> list[tuple[int, int]]:
        """(inputs, outputs) of each linear layer."""
        sizes = [self.observation.size, *self.hidden, 1]
        pairs = list(pairwise(sizes))
        inputs, outputs = pairs[self.action_layer]
        pairs[self.action_layer] = (inputs + self.action_size, outputs)
        return pairs


NetworkSpec = Actor | Critic


def initial_parameters(spec: NetworkSpec, random: np.random.Generator) -> dict[str, np.ndarray]:
    """Fresh values for every parameter of a network that is not a user's own."""
    values: dict[str, np.ndarray] = {}
    lead = (spec.members,) if spec.members else ()
    for i, (inputs, outputs) in enumerate(spec.layers):
        last = i == len(spec.layers) - 1
        for kind, shape in (("weight", (*lead, outputs, inputs)), ("bias", (*lead, outputs))):
            values[f"layers.{i}.{kind}"] = _draw(spec.initializer, random, shape, inputs, last).astype(np.float32)
    return values


def _draw(
    init: Initializer, random: np.random.Generator, shape: tuple[int, ...], inputs: int, last: bool
) -> np.ndarray:
    if last and init.final_bound > 0:
        return random.uniform(-init.final_bound, init.final_bound, shape)
    if init.kind == "normal":
        return random.normal(0.0, init.gain, shape)
    bound = init.gain / math.sqrt(inputs)
    return random.uniform(-bound, bound, shape)
