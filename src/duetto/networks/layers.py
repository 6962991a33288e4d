"""Layers as data: their arrays' names and shapes, and what they compute from a framework's operations.

A `Stack` declares its linear layers and normalizations, and computes its output with a `StackArrays`, the same code in
PyTorch, JAX and NumPy. A new kind of layer is a subclass, which may live in an algorithm's file.

A framework's module of layers has these functions. Weights have PyTorch's layout, an ensemble's a leading axis of M.

    activations                              functions by name
    linear(x, weight, bias)                  x Wᵀ + b, (..., in) to (..., out); of an ensemble (M, B, in) or (B, in) to
                                             (M, B, out); the bias may be None
    output_linear(x, weight, bias)           the last layer, float32 in every precision: bfloat16 has 8 bits, so values
                                             near 300 would be even numbers, without TD errors below 1
    norm(x, scale, shift)                    layer normalization over the last axis (Ba et al., 2016)
    batch_norm(x, scale, shift, ε)           x normalized over its rows, with gradients through mean and variance
    conv_relu(x, weight, bias, stride, c)    ReLU of a convolution of c x without padding
    prepare_image(image, channels_first, y)  images (B, ...) uint8 in the layout of `conv_relu` and the precision of y
    flatten(image)                           outputs of convolutions as (B, features), channels last
    recurrent(spec, weights, x, carry, window)  inputs (B, S, in) to outputs (B, S, size), and the carry after them
    split_members(values)                    an ensemble's arrays by member, None for one batched product
    cast_input(x, y)                         x in the precision of products with y
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from array_api_compat import array_namespace

from duetto.errors import UsageError
from duetto.functional.array_ops import stop_gradient
from duetto.networks import batch_norm
from duetto.networks.spaces import Space

Array = Any
Tree = Any
Values = Mapping[str, Array]
Carry = dict[str, Array]

Activation = Literal["relu", "tanh", "elu", "silu"]
Recurrent = Literal["none", "lstm", "gru"]
Blocks = Literal["mlp", "layer_norm", "simba"]
AllBlocks = Literal["mlp", "layer_norm", "simba", "batch_norm", "batch_renorm"]  # the last two need calls with `train`,
FlashBlocks = Literal["flash", "xqc"]  # and so do these
EXPANSION = 4  # inner width of SimBa's residual blocks, in units of their width


class SequenceInput(NamedTuple):
    """B sequences of S successive observations.

    position     0  1  2  3  4  5  6        S = 7 observations, burn-in 2
    starts       .  .  .  .  .  .  .        True: an episode's first observation, the carry is zeroed before it
    carry      ^                            the state before position 0
    query_steps        2  3  4  5           positions of the outputs
    """

    obs: Tree  # (B, S, ...)
    previous_action: Array  # (B, S) int, -1 for none; or (B, S, A) float, zeros for none
    previous_reward: Array  # (B, S), 0 for none
    starts: Array  # (B, S) bool
    carry: dict[str, Array]  # (B, layers, size) each, the state before position 0; zeros where one is missing
    is_first: Array  # (B,) bool, an episode starts at position 0: `carry` is exact, and no burn-in is needed
    query_steps: Array | None  # (B, T) int in 0 .. S-1; None while acting: S = 1, and outputs have no time axis

    def within(self, prefix: str) -> SequenceInput:
        """Return the sequences with the carry's arrays whose names start with `prefix`, without it."""
        carry = {name.removeprefix(prefix): part for name, part in self.carry.items() if name.startswith(prefix)}
        return self._replace(carry=carry)


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
    xqc          x → norm(x) → σ(norm(W x)) → ... → W x      (Palenicek et al., 2025, arXiv:2509.25174)
    flash        x → W norm(x) → x + σ(norm(W' σ(norm(W x)))) → ... → rms_norm(x) → W x      (FlashSAC, 2604.04539)

    The norms of xqc and flash are over the rows of a batch, and their hidden layers have no biases. A subclass may
    override `layers`, `norms` and `forward`.
    """

    name: str
    inputs: int
    hidden: tuple[int, ...] = ()
    outputs: int = 0  # of the last layer; 0 for none
    activation: Activation = "relu"
    blocks: AllBlocks | FlashBlocks = "mlp"
    joined: int = 0  # size of the action that joins the input ...
    joins: int = 0  # ... of this linear layer
    numbered: bool = True  # False: a single layer with the stack's name

    def __post_init__(self) -> None:
        if self.blocks in ("simba", "flash") and len(set(self.hidden)) > 1:
            raise UsageError(
                f"With network {self.blocks} all hidden layers have one size; hidden is {self.hidden}. Give one size, "
                "once for each block: --hidden 256 256."
            )
        if self.blocks not in ("mlp", "layer_norm") and self.joins:
            raise UsageError(f"critic_action_layer is {self.joins}; with network {self.blocks} it must be 0.")

    @property
    def width(self) -> int:
        """Number of outputs."""
        return self.outputs or (self.hidden[-1] if self.hidden else self.inputs)

    @cached_property
    def residual(self) -> bool:
        """Whether it has residual blocks, of two linear layers each."""
        return self.blocks in ("simba", "flash") and bool(self.hidden)

    @cached_property
    def over_batches(self) -> bool:
        """Whether normalization is over the rows of a batch instead of features."""
        return self.blocks not in ("mlp", "layer_norm", "simba") and bool(self.hidden)

    @cached_property
    def biases(self) -> bool:
        """Whether hidden layers have biases; the last layer has."""
        return self.blocks not in ("xqc", "flash")

    @cached_property
    def layers(self) -> list[tuple[int, int]]:
        """(inputs, outputs) of each linear layer."""
        sizes = [self.inputs, *self.hidden]
        pairs = list(pairwise(sizes))
        if self.residual:
            width = self.hidden[0]
            pairs = [(self.inputs, width), *[(width, EXPANSION * width), (EXPANSION * width, width)] * len(self.hidden)]
        if self.outputs:
            pairs.append((sizes[-1], self.outputs))
        if self.joined:
            inputs, width = pairs[self.joins]
            pairs[self.joins] = (inputs + self.joined, width)
        return pairs

    @cached_property
    def norms(self) -> list[int]:
        """Units of each normalization."""
        if self.blocks == "mlp" or not self.hidden:
            return []
        if self.blocks == "flash":
            width = self.hidden[0]
            return [self.inputs + self.joined, *[EXPANSION * width, width] * len(self.hidden), width]
        if self.over_batches:
            return [self.inputs + self.joined, *self.hidden]
        return [*self.hidden, *self.hidden[-1:]] if self.residual else list(self.hidden)

    @cached_property
    def root_mean_square(self) -> int:
        """Number of the normalization that divides by the root mean square, and has no bias; -1 if there is none."""
        return len(self.norms) - 1 if self.blocks == "flash" else -1

    def layer(self, i: int) -> str:
        """The name of a linear layer."""
        return f"{self.name}.{i}" if self.numbered else self.name

    def norm(self, i: int) -> str:
        """The name of a normalization."""
        return f"{self.name}_norms.{i}"

    def forward(self, arrays: StackArrays, x: Array, joined: Array | None = None) -> Array:
        """Return outputs (..., width) for x (..., inputs) and `joined` (..., joined)."""
        if self.residual or self.over_batches:
            x = self._hidden(arrays, join(x, joined))
            return arrays.output(len(self.layers) - 1, x) if self.outputs else x
        for i in range(len(self.layers)):
            x = join(x, joined) if i == self.joins else x
            if i == len(self.hidden):
                return arrays.output(i, x)
            x = arrays.linear(i, x)
            x = arrays.activation(arrays.norm(i, x) if self.blocks == "layer_norm" else x)
        return x

    def _hidden(self, arrays: StackArrays, x: Array) -> Array:
        """Return the hidden layers of x, for blocks that are residual or normalized over batches."""
        blocks, act, batch_norm = range(len(self.hidden)), arrays.activation, arrays.batch_norm
        if self.blocks == "simba":
            x = arrays.linear(0, x)
            for i in blocks:
                x = x + arrays.linear(2 + 2 * i, arrays.relu(arrays.linear(1 + 2 * i, arrays.norm(i, x))))
            return arrays.norm(len(blocks), x)
        x = batch_norm(0, x)
        if self.blocks == "flash":
            x = arrays.linear(0, x)
            for i in blocks:
                inside = act(batch_norm(1 + 2 * i, arrays.linear(1 + 2 * i, x)))
                x = x + act(batch_norm(2 + 2 * i, arrays.linear(2 + 2 * i, inside)))
            return arrays.rms_norm(self.root_mean_square, x)
        for i in blocks:
            x = arrays.linear(i, x)
            x = act(batch_norm(1 + i, x)) if self.blocks == "xqc" else batch_norm(1 + i, act(x))
        return x

    @property
    def statistics(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the running statistics by name."""
        shapes: dict[str, tuple[int, ...]] = {}
        for i, width in enumerate(self.norms if self.over_batches else []):
            if i != self.root_mean_square:
                shapes |= {f"{self.norm(i)}.mean": (width,), f"{self.norm(i)}.variance": (width,)}
                shapes |= {f"{self.norm(i)}.count": ()} if self.blocks == "batch_renorm" else {}
        return shapes


class StackArrays:
    """A stack's layers in one framework, with their arrays."""

    def __init__(
        self, stack: Stack, layers: Any, values: Values, prefix: str = "", stats: dict[str, Array] | None = None
    ) -> None:
        """`prefix` precedes names in `values`; new running statistics go into `stats`, None to use the old."""
        self._stack, self._layers, self._values, self._prefix, self._stats = stack, layers, values, prefix, stats
        self.activation: Callable[[Array], Array] = layers.activations[stack.activation]
        self.relu: Callable[[Array], Array] = layers.activations["relu"]

    def linear(self, i: int, x: Array) -> Array:
        """Return the i-th linear layer of x."""
        return self._layers.linear(x, *self._pair(self._stack.layer(i)))

    def output(self, i: int, x: Array) -> Array:
        """Return the i-th linear layer of x, the last one: float32 in every precision."""
        return self._layers.output_linear(x, *self._pair(self._stack.layer(i)))

    def norm(self, i: int, x: Array) -> Array:
        """Return the i-th layer normalization of x."""
        return self._layers.norm(x, *self._pair(self._stack.norm(i)))

    def batch_norm(self, i: int, x: Array) -> Array:
        """Return the i-th normalization of x over its rows, or by the running statistics; see `networks.batch_norm`."""
        name = self._prefix + self._stack.norm(i)
        scale, shift = self._pair(self._stack.norm(i))
        if scale.ndim > x.ndim - 1:  # all members of an ensemble get the same rows
            x = array_namespace(x).broadcast_to(x[None], (len(scale), *x.shape))
        flash = self._stack.blocks == "flash"  # with PyTorch's epsilon and unbiased estimate
        epsilon = 1e-5 if flash else batch_norm.EPSILON
        if self._stats is None:
            return batch_norm.eval_norm(x, self._values, name, scale, shift, epsilon)
        axes = tuple(range(scale.ndim - 1, x.ndim - 1))
        mean, variance = batch_norm.moments(stop_gradient(x), axes)
        rows = math.prod(x.shape[axis] for axis in axes)
        estimate = variance * (rows / max(rows - 1, 1)) if flash else variance
        self._stats |= batch_norm.updated_stats(self._values, name, mean, estimate)
        scale, shift = batch_norm.renormalized(self._values, name, mean, variance, scale, shift)
        return self._layers.batch_norm(x, scale, shift, epsilon)

    def rms_norm(self, i: int, x: Array) -> Array:
        """Return x / √(mean x² + 1e-6) · g over the last axis, float32 (Zhang & Sennrich, 2019, arXiv:1910.07467)."""
        xp = array_namespace(x)
        scale, _ = self._pair(self._stack.norm(i))
        x = xp.astype(x, xp.float32)
        x = x / xp.sqrt(xp.mean(x * x, axis=-1, keepdims=True) + 1e-6)
        return x * batch_norm.broadcastable(scale, x)

    def _pair(self, name: str) -> tuple[Array, Any]:
        name = self._prefix + name
        return self._values[f"{name}.weight"], self._values.get(f"{name}.bias")


def join(x: Array, joined: Any) -> Array:
    """Concatenate x and the action, which is the same for all members of an ensemble; x alone if there is none."""
    if joined is None:
        return x
    xp = array_namespace(x)
    joined = xp.astype(joined, x.dtype, copy=False)
    if x.ndim > joined.ndim:
        joined = xp.broadcast_to(joined[None], (*x.shape[:-1], joined.shape[-1]))
    return xp.concat([x, joined], axis=-1)


# ------------------------------------------------------------------------------------------------- weights of unit norm
def projected(stacks: list[Stack], values: Values) -> dict[str, Array]:
    """Return the arrays of these layers by name, projected onto unit norm, as after every optimizer step.

        linear layer     each row (an output's weights)      w ← w / max(‖w‖, 1e-8)
        batch norm       scale γ and shift β together        (γ, β) ← (γ, β) · √(width / (Σ γ² + Σ β² + 1e-8))
        RMS norm         scale g                             g ← g · √(width / (Σ g² + 1e-8))

    Biases stay. The step size of a projected weight relative to its norm is the learning rate (Loshchilov et al., 2025,
    nGPT, arXiv:2410.01131; Lee et al., 2025, SimbaV2, arXiv:2502.15280).
    """
    found: dict[str, Array] = {}
    for stack in stacks:
        for i in range(len(stack.layers)):
            name = f"{stack.layer(i)}.weight"
            found[name] = _unit_rows(values[name])
        for i, width in enumerate(stack.norms if stack.blocks == "flash" else []):
            names = [f"{stack.norm(i)}.{part}" for part in ("weight", "bias") if f"{stack.norm(i)}.{part}" in values]
            found |= zip(names, _joint([values[name] for name in names], width), strict=True)
    return found


def _unit_rows(weight: Array) -> Array:
    xp = array_namespace(weight)
    norm = xp.sqrt(xp.sum(weight * weight, axis=-1, keepdims=True))
    return weight / xp.clip(norm, 1e-8, None)


def _joint(parts: list[Array], width: int) -> list[Array]:
    """Scale arrays (..., width) by one factor, after which their squares add up to `width`."""
    xp = array_namespace(parts[0])
    squares = sum(xp.sum(part * part, axis=-1, keepdims=True) for part in parts)
    factor = (width / (squares + 1e-8)) ** 0.5
    return [part * factor for part in parts]
