"""Heads: the layers of a network after its torso, and the results that losses and policies get from them.

If the torso has no layers, as in TD3's critic, all layers are in the head.

A head is declared once for PyTorch, JAX and NumPy: `stacks` returns its layers, `output` and `interpret` compute its
result. A new kind of head is a frozen dataclass that inherits from `Head` or `HiddenHead`. It may be defined in
an algorithm's file.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace
from typing_extensions import override

from duetto.functional.distributions import (
    Categorical,
    DiagonalGaussian,
    Distribution,
    Joint,
    SquashedGaussian,
    split_bounds,
)
from duetto.functional.q_values import dueling, mask_actions
from duetto.networks.layers import Activation, AllBlocks, Array, FlashBlocks, Stack, Values
from duetto.networks.spaces import Box, Dict, Discrete, MultiDiscrete, Space


class Head:
    """Base of all heads.

    Attributes:
        name: Name of the head in errors. If each head has its own torso, this torso is named `<name>_torso`.
        gain: Gain of the last layer's orthogonal initial weights.
    """

    name: ClassVar[str]
    gain: float = 1.0

    @property
    def action_size(self) -> int:
        """The `action_size` of a custom network that replaces this head; by default, the size of a row of `output`."""
        return math.prod(self.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a row of `output`: () for a number, or (n,). A custom network returns (B, *shape)."""
        raise NotImplementedError

    @property
    def parameters(self) -> dict[str, tuple[tuple[int, ...], float]]:
        """Shape and initial value, by name, of parameters that belong to no layer."""
        return {}

    def stacks(self, width: int) -> list[Stack]:
        """Return the head's layers, for inputs of `width` features."""
        raise NotImplementedError

    def result(self, outputs: Sequence[Array], values: Values) -> Any:
        """Return the result that losses get for the stacks' `outputs` (..., n); `values` contains the `parameters`."""
        return self.interpret(self.output(outputs))

    def output(self, outputs: Sequence[Array]) -> Array:
        """Combine the stacks' outputs (..., n) into one array (..., *shape)."""
        return outputs[0] if self.shape else outputs[0][..., 0]

    def interpret(self, output: Array) -> Any:
        """Return the result that losses get for `output` (..., *shape): this array, or a distribution."""
        return output

    def mask(self, result: Any, mask: Array) -> Any:
        """Apply an action mask to the result of `interpret`. `mask` is (..., n), True for allowed actions."""
        return result


@dataclass(frozen=True)
class HiddenHead(Head):
    """Base of heads with hidden layers."""

    action: int  # A, or the number of discrete actions
    hidden: tuple[int, ...] = ()
    activation: Activation = "relu"
    blocks: AllBlocks | FlashBlocks = "mlp"

    @property
    @override
    def action_size(self) -> int:
        return self.action

    @property
    @override
    def shape(self) -> tuple[int, ...]:
        return (self.action,)

    @override
    def stacks(self, width: int) -> list[Stack]:
        return [Stack("layers", width, self.hidden, math.prod(self.shape), self.activation, self.blocks)]


@dataclass(frozen=True)
class DeterministicHead(HiddenHead):
    """A deterministic policy μ: features to actions (B, A) in [-1, 1], by tanh."""

    name: ClassVar[str] = "action"

    def output(self, outputs: Sequence[Array]) -> Array:
        """Return tanh of the layers' output."""
        return array_namespace(outputs[0]).tanh(outputs[0])


@dataclass(frozen=True)
class SquashedGaussianHead(HiddenHead):
    """A Gaussian policy with tanh: features to `functional.distributions.SquashedGaussian` over actions (B, A).

    One last layer outputs means and log-stds. Log-stds are clipped to the range `log_std` (Haarnoja et al., 2018). With
    `squashes`, tanh maps them into this range instead: 0 becomes the middle of the range.
    """

    log_std: tuple[float, float] = (-20.0, 2.0)  # range of log-stds
    squashes: bool = False
    name: ClassVar[str] = "policy"

    @property
    def shape(self) -> tuple[int, ...]:
        """(2 A,): means, then log-stds."""
        return (2 * self.action,)

    def interpret(self, output: Array) -> SquashedGaussian:
        """Return the distribution."""
        log_std = output[..., self.action :]
        if self.squashes:
            low, high = self.log_std
            log_std = low + 0.5 * (high - low) * (1.0 + array_namespace(output).tanh(log_std))
        else:
            log_std = log_std.clip(*self.log_std)  # xp.clip would double the time of acting in NumPy
        return SquashedGaussian(output[..., : self.action], log_std)


@dataclass(frozen=True)
class CriticHead(HiddenHead):
    """A critic: features and actions (B, A) to values (B,), or (members, B) for an ensemble."""

    joins: int = 0  # index of the linear layer where the action joins (critic_action_layer); 1 in the DDPG paper
    outputs: int = 0  # numbers that describe a return's distribution, (B, outputs); 0: only values (B,)
    name: ClassVar[str] = "value"

    @property
    @override
    def shape(self) -> tuple[int, ...]:
        return (self.outputs,) if self.outputs else ()

    @override
    def stacks(self, width: int) -> list[Stack]:
        size = math.prod(self.shape)
        return [Stack("layers", width, self.hidden, size, self.activation, self.blocks, self.action, self.joins)]


@dataclass(frozen=True)
class ActionValueHead(HiddenHead):
    """A critic for discrete actions: features to values (B, actions).

    With `dueling`, the values come from a state value and the actions' advantages, each with its own `hidden` layers.
    """

    dueling: bool = False
    name: ClassVar[str] = "value"

    def stacks(self, width: int) -> list[Stack]:
        """Return one stack, two if dueling."""
        ends = {"value": 1, "advantage": self.action} if self.dueling else {"advantage": self.action}
        return [Stack(name, width, self.hidden, end, self.activation, self.blocks) for name, end in ends.items()]

    def output(self, outputs: Sequence[Array]) -> Array:
        """Return the values."""
        return dueling(*outputs) if self.dueling else outputs[0]

    @override
    def mask(self, result: Array, mask: Array) -> Array:
        return mask_actions(result, mask)


@dataclass(frozen=True)
class PolicyHead(Head):
    """A policy: features to a distribution over actions, whose kind depends on the action space.

    A Gaussian's log-std is a parameter that does not depend on the observation (Schulman et al., 2015).
    """

    space: Space
    gain: float = 1.0
    initial_log_std: float = 0.0
    name: ClassVar[str] = "policy"

    @property
    @override
    def shape(self) -> tuple[int, ...]:
        return (num_outputs(self.space),)

    @property
    def parameters(self) -> dict[str, tuple[tuple[int, ...], float]]:
        """Shape and initial value of "log_std" if the actions contain a Box."""
        numbers = num_outputs(self.space) - self.space.size  # Boxes have a mean and a log-std for each number
        return {"log_std": ((numbers,), self.initial_log_std)} if numbers else {}

    def stacks(self, width: int) -> list[Stack]:
        """Return one layer."""
        return [Stack("policy_head", width, (), self.space.size, numbered=False)]

    @override
    def result(self, outputs: Sequence[Array], values: Values) -> Any:
        return distribution(self.space, outputs[0], values.get("log_std"))

    def interpret(self, output: Array) -> Any:
        """Return the distribution."""
        return distribution(self.space, output)

    @override
    def mask(self, result: Any, mask: Array) -> Any:
        return result.with_mask(mask)


@dataclass(frozen=True)
class StateValueHead(Head):
    """A value function: features to state values (B,)."""

    gain: float = 1.0
    name: ClassVar[str] = "value"

    @property
    def shape(self) -> tuple[int, ...]:
        """(), because a row is a number."""
        return ()

    def stacks(self, width: int) -> list[Stack]:
        """Return one layer."""
        return [Stack("value_head", width, (), 1, numbered=False)]


# ---------------------------------------------------------------------------------------------------- distributions
def num_outputs(action: Space) -> int:
    """Return the number of outputs that parameterize the distribution over these actions."""
    if isinstance(action, Dict):
        return sum(num_outputs(part) for _, part in action.parts)
    return 2 * action.size if isinstance(action, Box) else action.size


def distribution(action: Space, parameters: Any, log_std: Any = None) -> Distribution:
    """Return the distribution over actions for a head's outputs, `parameters` (..., num_outputs).

    Discrete: logits. MultiDiscrete: the concatenated logits. Box: means, then log-stds. Dict: the concatenated outputs
    for its parts. If `log_std` (n,) gives the log-stds of all n continuous numbers, the outputs are (..., action.size)
    and contain no log-stds.
    """
    match action:
        case Discrete():
            return Categorical(parameters)
        case Box() if log_std is None:
            return DiagonalGaussian(parameters[..., : action.size], parameters[..., action.size :])
        case Box():
            rows = log_std[(None,) * (parameters.ndim - 1)]  # equal ranks, as losses in JAX require
            return DiagonalGaussian(parameters, rows + array_namespace(parameters).zeros_like(parameters))
        case MultiDiscrete():
            spaces: list[Space] = [Discrete(n) for n in action.nvec]
        case Dict():
            spaces = [part for _, part in action.parts]
    sizes = [num_outputs(space) if log_std is None else space.size for space in spaces]
    parts: list[Any] = []
    for space, (low, high) in zip(spaces, split_bounds(sizes), strict=True):
        stds = None
        if log_std is not None and isinstance(space, Box):
            stds, log_std = log_std[: space.size], log_std[space.size :]
        part = distribution(space, parameters[..., low:high], stds)
        parts += part.parts if isinstance(part, Joint) else [part]
    return Joint(tuple(parts))


def sampling_noise(action: Space, random: Any, shape: tuple[int, ...]) -> Any:
    """Draw noise (*shape, action.size) float32: standard normal for continuous numbers, Gumbel for discrete choices.

    The noise is for distributions' `sample`. `random` is a NumPy generator or has its methods (`learners.jax_random`).
    """
    if isinstance(action, Dict):
        parts = [sampling_noise(part, random, shape) for _, part in action.parts]
        return array_namespace(*parts).concat(parts, axis=-1)
    if isinstance(action, Box):
        return random.standard_normal((*shape, action.size), dtype=np.float32)
    uniform = random.random((*shape, action.size), dtype=np.float32)
    xp = array_namespace(uniform)
    return -xp.log(-xp.log(uniform.clip(np.float32(1e-20), np.float32(1 - 2**-24))))
