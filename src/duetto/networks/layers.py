"""Layers as data: the names and shapes of their arrays, and the computation of their outputs in any framework.

A `Stack` declares its linear layers and normalizations. It computes its output with a `StackArrays`, by the same code
in PyTorch, JAX and NumPy. To add a kind of stack, write a subclass; it may be in an algorithm's file.

`torch_layers` and `jax_layers` implement these functions; `numpy_layers` implements those that acting needs. Weights
have PyTorch's layout. An ensemble's weights have a leading axis of M members.

    activations                              functions by name
    linear(x, weight, bias)                  x Wᵀ + b for x (..., in). With an ensemble, x is (M, B, in) or (B, in), and
                                             the result (M, B, out). The bias may be None
    output_linear(x, weight, bias)           the last layer, float32 in every precision: bfloat16 rounds values near 300
                                             to even numbers, which loses TD errors below 1
    norm(x, scale, shift)                    layer normalization over the last axis (Ba et al., 2016)
    batch_norm(x, scale, shift, ε)           x normalized over its rows, with gradients through mean and variance; and
                                             the mean and population variance in the shape of `scale`, (width,) or
                                             (M, width), float32, without gradients
    conv_relu(x, weight, bias, stride, c)    ReLU of an unpadded convolution of c · x
    prepare_image(image, channels_first, y)  uint8 images (B, ...) in `conv_relu`'s layout and the precision of y
    flatten(image)                           the convolutions' outputs as (B, features), channels last
    recurrent(spec, weights, x, carry, window)  outputs (B, S, size) for x (B, S, in), and the last hidden state
    split_members(values)                    a list with each member's arrays; None if one batched product is faster
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
AllBlocks = Literal["mlp", "layer_norm", "simba", "batch_norm", "batch_renorm"]  # losses call the last two with `train`
FlashBlocks = Literal["flash", "xqc"]  # losses call these with `train`
EXPANSION = 4  # inner width of a residual block, divided by its outer width


class SequenceInput(NamedTuple):
    """The input of a recurrent network: B sequences of S successive observations.

    position     0  1  2  3  4  5  6        S = 7 observations, burn-in 2
    starts       .  .  .  .  .  .  .        True: an episode's first observation, the carry is zeroed before it
    carry      ^                            the state before position 0
    query_steps        2  3  4  5           positions of the outputs
    """

    obs: Tree  # (B, S, ...)
    previous_action: Array  # (B, S) int, -1 for none; or (B, S, A) float, zeros for none
    previous_reward: Array  # (B, S), 0 for none
    starts: Array  # (B, S) bool
    carry: dict[str, Array]  # (B, layers, size) each, hidden states before position 0; zeros if none are stored
    is_first: Array  # (B,) bool, an episode starts at position 0: `carry` is exact, and no burn-in is needed
    query_steps: Array | None  # (B, T) int in 0 .. S-1; None while acting: S = 1, and outputs have no time axis


@dataclass(frozen=True)
class RecurrentSpec:
    """Recurrent layers. A network with them is called with a `SequenceInput` instead of observations.

    The layers' inputs are features, the previous action (one-hot if discrete; zeros for none) and the previous reward.
    """

    kind: Literal["lstm", "gru"]
    size: int
    layers: int
    action: Space  # space of the previous action
    burn_in: int = 0  # number of first positions, which only prepare the hidden state, without gradient
    learn_from_start: bool = True  # no burn-in where an episode starts at position 0
    orthogonal: bool = False  # orthogonal weights and zero biases (Andrychowicz et al., 2021) instead of U(±1/√size)

    @property
    def gates(self) -> int:
        """Number of gates; a layer's weights have `gates * size` rows."""
        return 4 if self.kind == "lstm" else 3

    def state(self) -> dict[str, tuple[int, int]]:
        """Return the hidden states' shapes by name, without the batch axis: "h", and for an LSTM its cells "c"."""
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
    """A sequence of linear layers: hidden layers with an activation, and optionally a last layer without activation.

    mlp          x → σ(W x) → ... → W x
    layer_norm   x → σ(norm(W x)) → ... → W x
    simba        x → W x → x + W' relu(W norm(x)) → ... → norm(x) → W x      W is 4 times as wide as x
                 (Lee et al., 2025, arXiv:2410.09754, section 4; one residual block for each hidden size, all equal)
    batch_norm   x → norm(x) → norm(σ(W x)) → ... → W x      over the rows of a batch; see `batch_norm`
    batch_renorm as batch_norm, with a correction towards the running statistics
    xqc          x → norm(x) → σ(norm(W x)) → ... → W x      (Palenicek et al., 2025, arXiv:2509.25174)
    flash        x → W norm(x) → x + σ(norm(W' σ(norm(W x)))) → ... → rms_norm(x) → W x     (FlashSAC, arXiv:2604.04539)

    σ is the activation. In xqc and flash, norms are over the rows of a batch, and hidden layers have no biases. A
    subclass may override `layers`, `norms` and `forward`.
    """

    name: str
    inputs: int
    hidden: tuple[int, ...] = ()
    outputs: int = 0  # size of the last layer; 0: no last layer
    activation: Activation = "relu"
    blocks: AllBlocks | FlashBlocks = "mlp"
    joined: int = 0  # size of the action that is concatenated to the input of one linear layer; 0: no action
    joins: int = 0  # index of this linear layer, the option critic_action_layer
    numbered: bool = True  # False: the stack is a single layer, which has the stack's name

    def __post_init__(self) -> None:
        if self.blocks in ("simba", "flash") and len(set(self.hidden)) > 1:
            raise UsageError(
                f"With network {self.blocks} all hidden layers have one size, not {self.hidden}. Give one size, once "
                "for each block, such as 256 256."
            )
        if self.blocks not in ("mlp", "layer_norm") and self.joins:
            raise UsageError(f"critic_action_layer is {self.joins}; with network {self.blocks} it must be 0.")

    @property
    def width(self) -> int:
        """Number of outputs."""
        return self.outputs or (self.hidden[-1] if self.hidden else self.inputs)

    @cached_property
    def residual(self) -> bool:
        """Whether the stack has residual blocks; each block has two linear layers."""
        return self.blocks in ("simba", "flash") and bool(self.hidden)

    @cached_property
    def over_batches(self) -> bool:
        """Whether the norms average over the rows of a batch instead of over the features of a row."""
        return self.blocks not in ("mlp", "layer_norm", "simba") and bool(self.hidden)

    @cached_property
    def biases(self) -> bool:
        """Whether hidden layers have biases; the last layer always has."""
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
        """Width of each normalization."""
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
        """Index of the normalization that divides by the root mean square and has no bias; -1 if there is none."""
        return len(self.norms) - 1 if self.blocks == "flash" else -1

    def layer(self, i: int) -> str:
        """Return the name of linear layer i."""
        return f"{self.name}.{i}" if self.numbered else self.name

    def norm(self, i: int) -> str:
        """Return the name of normalization i."""
        return f"{self.name}_norms.{i}"

    def forward(self, arrays: StackArrays, x: Array, joined: Array | None = None) -> Array:
        """Return the outputs (..., width) for x (..., inputs) and, in critics, the action `joined` (..., A)."""
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
        """Return the last hidden layer's output for x. Only for stacks with residual or batch-normalized blocks."""
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
        """`values` has the arrays under `prefix` + name. `stats` collects new running statistics; None: use the old."""
        self._stack, self._layers, self._values, self._prefix, self._stats = stack, layers, values, prefix, stats
        self.activation: Callable[[Array], Array] = layers.activations[stack.activation]
        self.relu: Callable[[Array], Array] = layers.activations["relu"]

    def linear(self, i: int, x: Array) -> Array:
        """Apply linear layer i to x."""
        return self._layers.linear(x, *self._pair(self._stack.layer(i)))

    def output(self, i: int, x: Array) -> Array:
        """Apply the last linear layer (index i) to x; the result is float32 in every precision."""
        return self._layers.output_linear(x, *self._pair(self._stack.layer(i)))

    def norm(self, i: int, x: Array) -> Array:
        """Apply layer normalization i to x."""
        return self._layers.norm(x, *self._pair(self._stack.norm(i)))

    def batch_norm(self, i: int, x: Array) -> Array:
        """Apply batch normalization i to x. With `stats`, use the mean and variance of x, else the running ones."""
        name = self._prefix + self._stack.norm(i)
        scale, shift = self._pair(self._stack.norm(i))
        if scale.ndim > x.ndim - 1:  # all members of an ensemble get the same rows
            x = array_namespace(x).broadcast_to(x[None], (len(scale), *x.shape))
        flash = self._stack.blocks == "flash"  # with PyTorch's epsilon and unbiased estimate
        epsilon = 1e-5 if flash else batch_norm.EPSILON
        if self._stats is None:
            return batch_norm.eval_norm(x, self._values, name, scale, shift, epsilon)
        y, mean, variance = self._layers.batch_norm(x, scale, shift, epsilon)
        rows = math.prod(x.shape) // math.prod(scale.shape)
        estimate = variance * (rows / max(rows - 1, 1)) if flash else variance
        self._stats |= batch_norm.updated_stats(self._values, name, mean, estimate)
        return batch_norm.renormalized(y, self._values, name, mean, variance, scale, shift)

    def rms_norm(self, i: int, x: Array) -> Array:
        """Return x / √(mean x² + 1e-6) · g over the last axis, float32 (Zhang & Sennrich, 2019, arXiv:1910.07467)."""
        xp = array_namespace(x)
        scale, _ = self._pair(self._stack.norm(i))
        x = xp.astype(x, xp.float32, copy=False)
        x = x / xp.sqrt(xp.mean(x * x, axis=-1, keepdims=True) + 1e-6)
        return x * batch_norm.broadcastable(scale, x)

    def _pair(self, name: str) -> tuple[Array, Any]:
        name = self._prefix + name
        return self._values[f"{name}.weight"], self._values.get(f"{name}.bias")


def norm(x: Array, scale: Array, shift: Array) -> Array:
    """Apply layer normalization over the last axis in NumPy or JAX, in float32 as in PyTorch."""
    xp, dtype = array_namespace(x), x.dtype
    x = xp.astype(x, xp.float32)
    x = x - xp.mean(x, axis=-1, keepdims=True)
    x = x / xp.sqrt(xp.mean(x * x, axis=-1, keepdims=True) + 1e-5)
    return xp.astype(x * batch_norm.broadcastable(scale, x) + batch_norm.broadcastable(shift, x), dtype)


def join(x: Array, joined: Any) -> Array:
    """Concatenate x and the action `joined`, which all members of an ensemble share. If `joined` is None, return x."""
    if joined is None:
        return x
    xp = array_namespace(x)
    joined = xp.astype(joined, x.dtype, copy=False)
    if x.ndim > joined.ndim:
        joined = xp.broadcast_to(joined[None], (*x.shape[:-1], joined.shape[-1]))
    return xp.concat([x, joined], axis=-1)


# ------------------------------------------------------------------------------------------------- weights of unit norm
def projected(stacks: list[Stack], values: Values) -> dict[str, Array]:
    """Return these stacks' weights by name, projected onto unit norm. Learners do this after every optimizer step.

        linear layer     each row (an output's weights)      w ← w / max(‖w‖, 1e-8)
        batch norm       scale γ and shift β together        (γ, β) ← (γ, β) · √(width / (Σ γ² + Σ β² + 1e-8))
        RMS norm         scale g                             g ← g · √(width / (Σ g² + 1e-8))

    Biases of linear layers do not change, nor do normalizations outside flash. As the weights' norms are constant, the
    learning rate determines the size of a step relative to the weights (Loshchilov et al., 2025, nGPT,
    arXiv:2410.01131; Lee et al., 2025, SimbaV2, arXiv:2502.15280).
    """
    arrays: dict[str, Array] = {}
    for stack in stacks:
        for i in range(len(stack.layers)):
            name = f"{stack.layer(i)}.weight"
            xp = array_namespace(values[name])
            arrays[name] = values[name] / xp.clip(xp.sqrt(_squares(values[name])), 1e-8, None)
        for i, width in enumerate(stack.norms if stack.blocks == "flash" else []):
            names = [f"{stack.norm(i)}.{part}" for part in ("weight", "bias") if f"{stack.norm(i)}.{part}" in values]
            factor = (width / (sum(_squares(values[name]) for name in names) + 1e-8)) ** 0.5
            arrays |= {name: values[name] * factor for name in names}
    return arrays


def _squares(x: Array) -> Array:
    return array_namespace(x).sum(x * x, axis=-1, keepdims=True)


# ---------------------------------------------------------------------------------------------------- recurrent layers
State = tuple[Array, ...]  # (B, size) each; the first one is also the output
Cell = Callable[[Array, Array, State], State]  # from x Wᵀ + b, h Wᵀ + b and the state to the next state


def recurrent(
    linear: Callable[..., Array],
    unroll: Callable[..., tuple[Array, State]],
    spec: RecurrentSpec,
    weights: Values,
    x: Array,
    carry: Carry,
    window: SequenceInput,
) -> tuple[Array, Carry]:
    """Return outputs (B, S, size) and last hidden states in NumPy or JAX; states and gates are float32."""
    xp = array_namespace(x)
    x, starts, dtype = xp.swapaxes(x, 0, 1), xp.swapaxes(window.starts, 0, 1), x.dtype  # time first
    after: list[State] = []
    for layer in range(spec.layers):
        state = tuple(xp.astype(part[:, layer], xp.float32) for part in carry.values())
        w = {kind: weights[f"{kind}_l{layer}"] for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
        entering = linear(xp.astype(x, dtype), w["weight_ih"], w["bias_ih"])  # for all steps at once
        burn_in, outputs = min(spec.burn_in, len(x)), []
        for part in (slice(0, burn_in), slice(burn_in, None)):
            if part.start == burn_in and burn_in:  # the burn-in has no gradient
                kept = window.is_first if spec.learn_from_start else xp.zeros_like(window.is_first)
                state = tuple(xp.where(kept[:, None], h, stop_gradient(h)) for h in state)
            if len(entering[part]):
                output, state = unroll(
                    CELLS[spec.kind], entering[part], starts[part], state, w["weight_hh"], w["bias_hh"]
                )
                outputs.append(output)
        x = xp.concat(outputs)
        after.append(state)
    stacked = {name: xp.stack([state[i] for state in after], axis=1) for i, name in enumerate(carry)}
    return xp.astype(xp.swapaxes(x, 0, 1), dtype), stacked


def lstm(entering: Array, recurrent: Array, state: State) -> State:
    """One step of an LSTM (Hochreiter & Schmidhuber, 1997); gates in PyTorch's order: input, forget, cell, output."""
    xp = array_namespace(entering)
    scale = xp.repeat(xp.asarray([0.5, 0.5, 1.0, 0.5], dtype=entering.dtype), state[1].shape[-1])[None]
    gates = xp.tanh((entering + recurrent) * scale) * scale + (1 - scale)  # σ(x) = tanh(x/2)/2 + 1/2, in one pass
    i, f, g, o = xp.split(gates, 4, -1)
    c = f * state[1] + i * g
    return o * xp.tanh(c), c


def gru(entering: Array, recurrent: Array, state: State) -> State:
    """One step of PyTorch's GRU (Cho et al., 2014); gates: reset, update, new."""
    xp = array_namespace(entering)
    (xr, xz, xn), (hr, hz, hn) = xp.split(entering, 3, -1), xp.split(recurrent, 3, -1)
    r, z = xp.tanh((xr + hr) / 2) / 2 + 0.5, xp.tanh((xz + hz) / 2) / 2 + 0.5
    n = xp.tanh(xn + r * hn)
    return (n + z * (state[0] - n),)


CELLS: dict[str, Cell] = {"lstm": lstm, "gru": gru}
