"""A network at work: what `specs.Network` says, computed. Written once, for PyTorch, JAX and NumPy.

A network is its spec and its arrays by name; how a framework computes a layer is in its `Layers`. Every network is a
trunk and a head. Without recurrence it is called with observations (B, ...). With it, `trunk` turns a `Window` into
features of all its positions and the carry behind them, and `head` turns some of these features into outputs;
`learners.unrolling` brings the two together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from array_api_compat import array_namespace

from duetto.functional.distributions import DiagonalGaussian, Distribution, SquashedGaussian, cuts
from duetto.functional.trees import mapped
from duetto.functional.values import dueling
from duetto.networks import batch_norm, masks, specs
from duetto.networks.encoding import convolutions, split
from duetto.networks.policies import distribution, joint
from duetto.networks.spaces import Box, Dict, Space
from duetto.networks.windows import Window

Array = Any
Values = Mapping[str, Array]
Features = Any  # an Array (..., width); of several torsos a tuple of them
Carry = dict[str, Array]


class Layers(Protocol):
    """How a framework computes layers. Weights are laid out as PyTorch's; (M, ...) those of an ensemble's M members."""

    @property
    def activations(self) -> Mapping[str, Callable[[Array], Array]]:
        """Activation functions by name."""
        ...

    def linear(self, x: Array, weight: Array, bias: Array) -> Array:
        """x Wᵀ + b, (..., in) to (..., out); with weights (M, out, in), (M, B, in) or (B, in) to (M, B, out)."""
        ...

    def norm(self, x: Array, scale: Array, shift: Array) -> Array:
        """Layer normalisation over the last axis (Ba et al., 2016), scale and shift (width,) or (M, width)."""
        ...

    def moments(self, x: Array, axes: tuple[int, ...]) -> tuple[Array, Array]:
        """Mean and variance over `axes`, in float32."""
        ...

    def batch_norm(self, x: Array, scale: Array, shift: Array, mean: Array, variance: Array) -> Array:
        """(x - mean) / √(variance + ε) · scale + shift, by x's own moments; its gradient goes through them too."""
        ...

    def convolve(self, x: Array, weight: Array, bias: Array, stride: int, factor: float) -> Array:
        """A convolution of x times `factor`, without padding, then ReLU; images lie as `picture` returns them."""
        ...

    def picture(self, image: Array, channels_first: bool, like: Array) -> Array:
        """Images (B, ...) uint8 in the layout and precision that `convolve` takes."""
        ...

    def flat(self, picture: Array) -> Array:
        """Outputs of convolutions as (B, features), row by row, channels last."""
        ...

    def recurrent(self, spec: specs.Recurrent, weights: Values, x: Array, window: Window) -> tuple[Array, Carry]:
        """Features (B, S, F) to outputs (B, S, size), and the carry after the last of them."""
        ...

    def members(self, values: Values) -> Sequence[Values] | None:
        """The arrays of each member where one after the other is faster; None where all are one batched product."""
        ...

    def entering(self, x: Array, like: Array) -> Array:
        """A vector in the precision that products with `like` are computed in."""
        ...

    def last(self, x: Array, weight: Array, bias: Array) -> Array:
        """The linear layer whose numbers leave the network: in float32, whatever the ones before are computed in.

        bfloat16 has 8 bits: values near 300 would be even numbers, and an error in them smaller than 1 would teach
        nothing.
        """
        ...


class Network:
    """See `specs.Network`.

    Attributes:
        spec: What it is.
        values: Its arrays by name.
        moved: The running statistics after the last call with `train`, by name, for whoever keeps the values.
    """

    spec: specs.Network
    values: Values

    def __init__(self, spec: specs.Network, values: Values, layers: Layers) -> None:
        self.spec, self.values, self._layers = spec, values, layers
        self.moved: dict[str, Array] = {}

    def __call__(self, obs: Any, *inputs: Array, train: bool = False) -> Any:
        """The heads' outputs for observations (B, ...), and for `inputs` such as actions.

        With `train`, batch normalisation is by the statistics of these B rows, and the running ones move. Where a mask
        is beside the observations, forbidden actions have no probability and the value -∞; see `masks`.
        """
        obs, mask = masks.parted(obs)
        return masks.masked(self.spec, self.head(self._features(obs), *inputs, train=train), mask)

    def first(self, obs: Any, *inputs: Array) -> Array:
        """The output of an ensemble's first member alone, at its cost alone."""
        return self.first_head(self._features(obs), *inputs)

    def trunk(self, window: Window) -> tuple[Features, Carry]:
        """Features (B, S, width) of a window, a tuple of them for several torsos; and the carry after it."""
        spec, shape = self.spec.recurrent, window.previous_reward.shape
        assert spec is not None
        obs, _ = masks.parted(window.obs)  # see `Unrolling`
        merged = mapped(lambda part: array_namespace(part).reshape(part, (-1, *part.shape[2:])), obs)
        parts = split(self.spec.observation, merged)
        found, carry = [], {}
        for torso in self.spec.torsos:
            x = self._encoded(torso, *parts)
            x = array_namespace(x).reshape(x, (*shape, -1))
            prefix = f"{torso}/" if len(self.spec.heads) > 1 else ""
            weights = _below(self.values, f"{torso}.recurrent.weights.")
            x, state = self._layers.recurrent(spec, weights, x, window.within(prefix))
            found.append(x)
            carry |= {f"{prefix}{key}": part for key, part in state.items()}
        return found[0] if len(found) == 1 else tuple(found), carry

    def head(self, features: Features, *inputs: Array, train: bool = False) -> Any:
        """Outputs (...) or (..., n) at features (..., width) and inputs (..., A); an ensemble's with a first axis."""
        if not self.spec.members:
            return self._heads(features, inputs, self.values, self.moved if train else None)
        xp, lead = array_namespace(features), features.shape[:-1]
        features, *given = (xp.reshape(part, (-1, part.shape[-1])) for part in (features, *inputs))
        members = self._layers.members(self.values)
        if members is None:
            found = self._heads(features, given, self.values, self.moved if train else None)
        else:
            each: list[dict[str, Array]] = [{} for _ in members]
            found = xp.stack(
                [
                    self._heads(features, given, values, moved if train else None)
                    for values, moved in zip(members, each, strict=True)
                ]
            )
            self.moved.update({name: xp.stack([moved[name] for moved in each]) for name in each[0]})
        return xp.reshape(found, (self.spec.members, *lead, *found.shape[2:]))

    def first_head(self, features: Features, *inputs: Array) -> Array:
        """The outputs (...) of the first member's head."""
        values = {name: array if name.startswith("torso") else array[0] for name, array in self.values.items()}
        return self._heads(features, inputs, values)

    # ------------------------------------------------------------------------------------------------ torsos
    def _features(self, obs: Any) -> Features:
        parts = split(self.spec.observation, obs)
        found = tuple(self._encoded(torso, *parts) for torso in self.spec.torsos)
        return found[0] if len(found) == 1 else found

    def _encoded(self, torso: str, images: dict[str, Array], vectors: list[Array]) -> Array:
        """Features (B, width) of each observation on its own, before recurrent layers; see `encoding.split`."""
        spec, like = self.spec.torso, next(iter(self.values.values()))
        parts = [self._image(torso, name, image, like) for name, image in images.items()]
        parts += [self._layers.entering(vector, like) for vector in vectors]
        x = parts[0] if len(parts) == 1 else array_namespace(*parts).concat(parts, axis=-1)
        return self._stack(spec.stack, x, self.values, f"{torso}.") if spec.hidden else x

    def _image(self, torso: str, name: str, image: Array, like: Array) -> Array:
        space = self.spec.torso.images[name]
        x = self._layers.picture(image, space.channels_first, like)
        for i, (_, _, stride) in enumerate(convolutions(space)):
            weight, bias = self._pair(self.values, f"{torso}.convolutions.{name}.{i}")
            x = self._layers.convolve(x, weight, bias, stride, 1.0 if i else 1 / 255)
        x = self._layers.linear(self._layers.flat(x), *self._pair(self.values, f"{torso}.features.{name}"))
        return self._layers.activations["relu"](x)

    # ------------------------------------------------------------------------------------------------ heads
    def _heads(self, features: Features, inputs: Any, values: Values, moved: dict[str, Array] | None = None) -> Any:
        """The heads' outputs; `moved` is where new running statistics are put, None when not training."""
        several = isinstance(features, tuple)
        found = tuple(
            self._head(i, features[i] if several else features, inputs, values, moved)
            for i in range(len(self.spec.heads))
        )
        return found if isinstance(self.spec.head, tuple) else found[0]

    def _head(self, i: int, x: Array, inputs: Any, values: Values, moved: dict[str, Array] | None = None) -> Any:
        """The output of the `i`-th head. A new kind of head is one more case here."""
        head = self.spec.heads[i]
        x = self._layers.entering(x, next(iter(values.values())))
        outputs = [self._stack(stack, x, values, "", *inputs, moved=moved) for stack in self.spec.stacks[i]]
        match head:
            case specs.Deterministic():
                return array_namespace(outputs[0]).tanh(outputs[0])
            case specs.SquashedGaussian():
                return squashed(outputs[0], head.log_std)
            case specs.ActionValues():
                return dueling(*outputs) if head.dueling else outputs[0]
            case specs.Policy():
                return self._policy(head.space, outputs[0], values)
            case specs.Values() | specs.StateValue():
                return outputs[0][..., 0]

    def _policy(self, space: Space, outputs: Array, values: Values) -> Distribution:
        if "log_std" not in values:
            return distribution(space, outputs)
        log_std = values["log_std"][(None,) * (outputs.ndim - 1)]
        if not isinstance(space, Dict):
            return DiagonalGaussian(outputs, log_std + array_namespace(outputs).zeros_like(outputs))
        own, first = [], 0
        for (_, part), (low, high) in zip(space.parts, cuts([part.size for _, part in space.parts]), strict=True):
            own.append(outputs[..., low:high])
            if isinstance(part, Box):
                std = log_std[..., first : first + part.size] + array_namespace(outputs).zeros_like(own[-1])
                own[-1], first = array_namespace(outputs).concat([own[-1], std], axis=-1), first + part.size
        return joint(space, own)

    # ------------------------------------------------------------------------------------------------ layers
    def _stack(
        self,
        stack: specs.Stack,
        x: Array,
        values: Values,
        prefix: str,
        joined: Array | None = None,
        moved: dict[str, Array] | None = None,
    ) -> Array:
        if stack.blocks == "simba" and stack.hidden:
            return self._residual(stack, x, values, prefix, joined)
        if stack.over_batches:
            return self._over_batches(stack, x, values, joined, moved)
        activation = self._layers.activations[stack.activation]
        for i in range(len(stack.layers)):
            x = _beside(x, joined) if joined is not None and i == stack.joins else x
            if i == len(stack.hidden):
                return self._layers.last(x, *self._pair(values, prefix + stack.layer(i)))
            x = self._layers.linear(x, *self._pair(values, prefix + stack.layer(i)))
            if stack.blocks == "layer_norm":
                x = self._layers.norm(x, *self._pair(values, prefix + stack.norm(i)))
            x = activation(x)
        return x

    def _residual(self, stack: specs.Stack, x: Array, values: Values, prefix: str, joined: Array | None) -> Array:
        """The output of SimBa's residual blocks; see `specs.Stack`."""

        def linear(i: int, x: Array) -> Array:
            return self._layers.linear(x, *self._pair(values, prefix + stack.layer(i)))

        def norm(i: int, x: Array) -> Array:
            return self._layers.norm(x, *self._pair(values, prefix + stack.norm(i)))

        x = linear(0, x if joined is None else _beside(x, joined))
        for block in range(len(stack.hidden)):
            inside = self._layers.activations["relu"](linear(1 + 2 * block, norm(block, x)))
            x = x + linear(2 + 2 * block, inside)
        x = norm(len(stack.hidden), x)
        last = 1 + 2 * len(stack.hidden)
        return self._layers.last(x, *self._pair(values, prefix + stack.layer(last))) if stack.outputs else x

    def _over_batches(
        self, stack: specs.Stack, x: Array, values: Values, joined: Array | None, moved: dict[str, Array] | None
    ) -> Array:
        """The output of layers with a batch norm before the first and after each activation; see `specs.Stack`."""
        x = x if joined is None else _beside(x, joined)
        for i in range(len(stack.hidden)):
            x = self._layers.linear(
                self._normalized(stack.norm(i), x, values, moved), *self._pair(values, stack.layer(i))
            )
            x = self._layers.activations[stack.activation](x)
        x = self._normalized(stack.norm(len(stack.hidden)), x, values, moved)
        return self._layers.last(x, *self._pair(values, stack.layer(len(stack.hidden)))) if stack.outputs else x

    def _normalized(self, name: str, x: Array, values: Values, moved: dict[str, Array] | None) -> Array:
        scale, shift = self._pair(values, name)
        if scale.ndim > x.ndim - 1:  # all members of an ensemble look at the same rows
            x = array_namespace(x).broadcast_to(x[None], (len(scale), *x.shape))
        if moved is None:
            return batch_norm.settled(x, values, name, scale, shift)
        mean, variance = self._layers.moments(x, tuple(range(scale.ndim - 1, x.ndim - 1)))
        moved |= batch_norm.moved(values, name, mean, variance)
        scale, shift = batch_norm.renormalized(values, name, mean, variance, scale, shift)
        return self._layers.batch_norm(x, scale, shift, mean, variance)

    def _pair(self, values: Values, name: str) -> tuple[Array, Array]:
        return values[f"{name}.weight"], values[f"{name}.bias"]


def squashed(outputs: Array, limits: tuple[float, float]) -> SquashedGaussian:
    """The distribution for outputs (..., 2 A): means, then logarithms of the std, which are clipped to `limits`."""
    size = outputs.shape[-1] // 2
    log_std = outputs[..., size:].clip(*limits)  # the arrays' own: the standard's takes half of acting in NumPy
    return SquashedGaussian(outputs[..., :size], log_std)


def _beside(x: Array, joined: Array) -> Array:
    """x and the numbers that join it, side by side; these are the same for all members of an ensemble."""
    xp = array_namespace(x)
    joined = xp.astype(joined, x.dtype)
    if x.ndim > joined.ndim:
        joined = xp.broadcast_to(joined[None], (*x.shape[:-1], joined.shape[-1]))
    return xp.concat([x, joined], axis=-1)


def _below(values: Values, prefix: str) -> dict[str, Array]:
    return {name.removeprefix(prefix): array for name, array in values.items() if name.startswith(prefix)}
