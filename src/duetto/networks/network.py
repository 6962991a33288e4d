"""The forward pass of a `NetworkSpec`, written once for PyTorch, JAX and NumPy.

A network is its spec and its arrays by name; a framework's `Layers` compute its layers. Every network is a trunk and a
head. A feedforward one is called with observations (B, ...). Of a recurrent one, `trunk` turns a `SequenceInput` into
features of all positions and the carry after them, and `head` turns features into outputs; `learners.recurrent_unroll`
joins both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from array_api_compat import array_namespace

from duetto.functional.array_ops import stop_gradient
from duetto.functional.distributions import DiagonalGaussian, Distribution, SquashedGaussian, split_bounds
from duetto.functional.pytree import tree_map
from duetto.functional.q_values import dueling
from duetto.networks import batch_norm, masks, specs
from duetto.networks.action_distributions import distribution, joint_distribution
from duetto.networks.preprocessing import convolutions, split_images
from duetto.networks.sequence_input import SequenceInput
from duetto.networks.spaces import Box, Dict, Space

Array = Any
Values = Mapping[str, Array]
Features = Any  # an Array (..., width); of several torsos a tuple of them
Carry = dict[str, Array]


class Layers(Protocol):
    """How a framework computes layers. Weights have PyTorch's layout, an ensemble's a leading axis of M members."""

    @property
    def activations(self) -> Mapping[str, Callable[[Array], Array]]:
        """Activation functions by name."""
        ...

    def linear(self, x: Array, weight: Array, bias: Array) -> Array:
        """x Wᵀ + b, (..., in) to (..., out); with weights (M, out, in), (M, B, in) or (B, in) to (M, B, out)."""
        ...

    def norm(self, x: Array, scale: Array, shift: Array) -> Array:
        """Layer normalization over the last axis (Ba et al., 2016); scale and shift are (width,) or (M, width)."""
        ...

    def batch_norm(self, x: Array, scale: Array, shift: Array) -> Array:
        """(x - mean) / √(variance + ε) · scale + shift; the gradient also goes through x's mean and variance."""
        ...

    def conv_relu(self, x: Array, weight: Array, bias: Array, stride: int, factor: float) -> Array:
        """A convolution of factor * x without padding, then ReLU; x has the layout of `prepare_image`."""
        ...

    def prepare_image(self, image: Array, channels_first: bool, like: Array) -> Array:
        """Images (B, ...) uint8 in the layout and precision of `conv_relu`."""
        ...

    def flatten(self, image: Array) -> Array:
        """Outputs of convolutions as (B, features), channels last."""
        ...

    def recurrent(
        self, spec: specs.RecurrentSpec, weights: Values, x: Array, window: SequenceInput
    ) -> tuple[Array, Carry]:
        """Features (B, S, F) to outputs (B, S, size), and the carry after the last of them."""
        ...

    def split_members(self, values: Values) -> Sequence[Values] | None:
        """The arrays of each member if computing one after the other is faster; None for one batched product."""
        ...

    def cast_input(self, x: Array, like: Array) -> Array:
        """x in the precision of products with `like`."""
        ...

    def output_linear(self, x: Array, weight: Array, bias: Array) -> Array:
        """The last linear layer, float32 in every precision.

        bfloat16 has 8 bits: values near 300 would be even numbers, without TD errors below 1.
        """
        ...


class Network:
    """The network of a `NetworkSpec`.

    Attributes:
        spec: The network's spec.
        values: Its arrays by name.
        updated_stats: The running statistics after the last call with `train`, by name; learners store them.
    """

    spec: specs.NetworkSpec
    values: Values

    def __init__(self, spec: specs.NetworkSpec, values: Values, layers: Layers) -> None:
        self.spec, self.values, self._layers = spec, values, layers
        self.updated_stats: dict[str, Array] = {}

    def __call__(self, obs: Any, *inputs: Array, train: bool = False) -> Any:
        """Return the heads' outputs for observations (B, ...) and `inputs` such as actions.

        With `train`, batch normalization uses the statistics of these B rows and updates the running ones. If the
        observations have a mask, forbidden actions have the probability 0 and the value -∞; see `masks`.
        """
        obs, mask = masks.split_mask(obs)
        return masks.mask_outputs(self.spec, self.head(self._features(obs), *inputs, train=train), mask)

    def q1(self, obs: Any, *inputs: Array) -> Array:
        """Return the output of an ensemble's first member, computing only this one."""
        return self.q1_head(self._features(obs), *inputs)

    def trunk(self, window: SequenceInput) -> tuple[Features, Carry]:
        """Return features (B, S, width), a tuple of them for several torsos, and the carry after the last position."""
        spec, shape = self.spec.recurrent, window.previous_reward.shape
        assert spec is not None
        obs, _ = masks.split_mask(window.obs)  # see `RecurrentUnroll`
        merged = tree_map(lambda part: array_namespace(part).reshape(part, (-1, *part.shape[2:])), obs)
        parts = split_images(self.spec.observation, merged)
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
        """Return outputs (...) or (..., n) for features (..., width) and inputs (..., A); of an ensemble (M, ...)."""
        if not self.spec.members:
            return self._heads(features, inputs, self.values, self.updated_stats if train else None)
        xp, lead = array_namespace(features), features.shape[:-1]
        features, *given = (xp.reshape(part, (-1, part.shape[-1])) for part in (features, *inputs))
        members = self._layers.split_members(self.values)
        if members is None:
            found = self._heads(features, given, self.values, self.updated_stats if train else None)
        else:
            each: list[dict[str, Array]] = [{} for _ in members]
            found = xp.stack(
                [
                    self._heads(features, given, values, stats if train else None)
                    for values, stats in zip(members, each, strict=True)
                ]
            )
            self.updated_stats.update({name: xp.stack([stats[name] for stats in each]) for name in each[0]})
        return xp.reshape(found, (self.spec.members, *lead, *found.shape[2:]))

    def q1_head(self, features: Features, *inputs: Array) -> Array:
        """Return the outputs (...) of the first member's head."""
        values = {name: array if name.startswith("torso") else array[0] for name, array in self.values.items()}
        return self._heads(features, inputs, values)

    # ------------------------------------------------------------------------------------------------ torsos
    def _features(self, obs: Any) -> Features:
        parts = split_images(self.spec.observation, obs)
        found = tuple(self._encoded(torso, *parts) for torso in self.spec.torsos)
        return found[0] if len(found) == 1 else found

    def _encoded(self, torso: str, images: dict[str, Array], vectors: list[Array]) -> Array:
        """Return features (B, width) before recurrent layers."""
        spec, like = self.spec.torso, next(iter(self.values.values()))
        parts = [self._image(torso, name, image, like) for name, image in images.items()]
        parts += [self._layers.cast_input(vector, like) for vector in vectors]
        x = parts[0] if len(parts) == 1 else array_namespace(*parts).concat(parts, axis=-1)
        return self._stack(spec.stack, x, self.values, f"{torso}.") if spec.hidden else x

    def _image(self, torso: str, name: str, image: Array, like: Array) -> Array:
        space = self.spec.torso.images[name]
        x = self._layers.prepare_image(image, space.channels_first, like)
        for i, (_, _, stride) in enumerate(convolutions(space)):
            weight, bias = self._pair(self.values, f"{torso}.convolutions.{name}.{i}")
            x = self._layers.conv_relu(x, weight, bias, stride, 1.0 if i else 1 / 255)
        x = self._layers.linear(self._layers.flatten(x), *self._pair(self.values, f"{torso}.features.{name}"))
        return self._layers.activations["relu"](x)

    # ------------------------------------------------------------------------------------------------ heads
    def _heads(self, features: Features, inputs: Any, values: Values, stats: dict[str, Array] | None = None) -> Any:
        """Return the heads' outputs; new running statistics go into `stats`, None when not training."""
        several = isinstance(features, tuple)
        found = tuple(
            self._head(i, features[i] if several else features, inputs, values, stats)
            for i in range(len(self.spec.heads))
        )
        return found if isinstance(self.spec.head, tuple) else found[0]

    def _head(self, i: int, x: Array, inputs: Any, values: Values, stats: dict[str, Array] | None = None) -> Any:
        """Return the output of the `i`-th head. A new kind of head is one more case here."""
        head = self.spec.heads[i]
        x = self._layers.cast_input(x, next(iter(values.values())))
        outputs = [self._stack(stack, x, values, "", *inputs, stats=stats) for stack in self.spec.stacks[i]]
        match head:
            case specs.DeterministicHead():
                return array_namespace(outputs[0]).tanh(outputs[0])
            case specs.SquashedGaussianHead():
                return squashed_gaussian(outputs[0], head.log_std)
            case specs.ActionValueHead():
                return dueling(*outputs) if head.dueling else outputs[0]
            case specs.PolicyHead():
                return self._policy(head.space, outputs[0], values)
            case specs.CriticHead() | specs.StateValueHead():
                return outputs[0][..., 0]

    def _policy(self, space: Space, outputs: Array, values: Values) -> Distribution:
        if "log_std" not in values:
            return distribution(space, outputs)
        log_std = values["log_std"][(None,) * (outputs.ndim - 1)]
        if not isinstance(space, Dict):
            return DiagonalGaussian(outputs, log_std + array_namespace(outputs).zeros_like(outputs))
        own, first = [], 0
        for (_, part), (low, high) in zip(
            space.parts, split_bounds([part.size for _, part in space.parts]), strict=True
        ):
            own.append(outputs[..., low:high])
            if isinstance(part, Box):
                std = log_std[..., first : first + part.size] + array_namespace(outputs).zeros_like(own[-1])
                own[-1], first = array_namespace(outputs).concat([own[-1], std], axis=-1), first + part.size
        return joint_distribution(space, own)

    # ------------------------------------------------------------------------------------------------ layers
    def _stack(
        self,
        stack: specs.Stack,
        x: Array,
        values: Values,
        prefix: str,
        joined: Array | None = None,
        stats: dict[str, Array] | None = None,
    ) -> Array:
        if stack.blocks == "simba" and stack.hidden:
            return self._residual(stack, x, values, prefix, joined)
        if stack.over_batches:
            return self._over_batches(stack, x, values, joined, stats)
        activation = self._layers.activations[stack.activation]
        for i in range(len(stack.layers)):
            x = _join(x, joined) if joined is not None and i == stack.joins else x
            if i == len(stack.hidden):
                return self._layers.output_linear(x, *self._pair(values, prefix + stack.layer(i)))
            x = self._layers.linear(x, *self._pair(values, prefix + stack.layer(i)))
            if stack.blocks == "layer_norm":
                x = self._layers.norm(x, *self._pair(values, prefix + stack.norm(i)))
            x = activation(x)
        return x

    def _residual(self, stack: specs.Stack, x: Array, values: Values, prefix: str, joined: Array | None) -> Array:
        """Return the output of SimBa's residual blocks; see `specs.Stack`."""

        def linear(i: int, x: Array) -> Array:
            return self._layers.linear(x, *self._pair(values, prefix + stack.layer(i)))

        def norm(i: int, x: Array) -> Array:
            return self._layers.norm(x, *self._pair(values, prefix + stack.norm(i)))

        x = linear(0, x if joined is None else _join(x, joined))
        for block in range(len(stack.hidden)):
            inside = self._layers.activations["relu"](linear(1 + 2 * block, norm(block, x)))
            x = x + linear(2 + 2 * block, inside)
        x = norm(len(stack.hidden), x)
        last = 1 + 2 * len(stack.hidden)
        return self._layers.output_linear(x, *self._pair(values, prefix + stack.layer(last))) if stack.outputs else x

    def _over_batches(
        self, stack: specs.Stack, x: Array, values: Values, joined: Array | None, stats: dict[str, Array] | None
    ) -> Array:
        """Return the output of layers with a batch norm before the first and after each activation."""
        x = x if joined is None else _join(x, joined)
        for i in range(len(stack.hidden)):
            x = self._layers.linear(
                self._normalized(stack.norm(i), x, values, stats), *self._pair(values, stack.layer(i))
            )
            x = self._layers.activations[stack.activation](x)
        x = self._normalized(stack.norm(len(stack.hidden)), x, values, stats)
        return (
            self._layers.output_linear(x, *self._pair(values, stack.layer(len(stack.hidden)))) if stack.outputs else x
        )

    def _normalized(self, name: str, x: Array, values: Values, stats: dict[str, Array] | None) -> Array:
        scale, shift = self._pair(values, name)
        if scale.ndim > x.ndim - 1:  # all members of an ensemble get the same rows
            x = array_namespace(x).broadcast_to(x[None], (len(scale), *x.shape))
        if stats is None:
            return batch_norm.eval_norm(x, values, name, scale, shift)
        mean, variance = batch_norm.moments(stop_gradient(x), tuple(range(scale.ndim - 1, x.ndim - 1)))
        stats |= batch_norm.updated_stats(values, name, mean, variance)
        scale, shift = batch_norm.renormalized(values, name, mean, variance, scale, shift)
        return self._layers.batch_norm(x, scale, shift)

    def _pair(self, values: Values, name: str) -> tuple[Array, Array]:
        return values[f"{name}.weight"], values[f"{name}.bias"]


def squashed_gaussian(outputs: Array, limits: tuple[float, float]) -> SquashedGaussian:
    """Return the distribution for outputs (..., 2 A): means, then log-stds, which are clipped to `limits`."""
    size = outputs.shape[-1] // 2
    log_std = outputs[..., size:].clip(*limits)  # not xp.clip, which takes half of the time of acting in NumPy
    return SquashedGaussian(outputs[..., :size], log_std)


def _join(x: Array, joined: Array) -> Array:
    """Concatenate x and the action, which is the same for all members of an ensemble."""
    xp = array_namespace(x)
    joined = xp.astype(joined, x.dtype)
    if x.ndim > joined.ndim:
        joined = xp.broadcast_to(joined[None], (*x.shape[:-1], joined.shape[-1]))
    return xp.concat([x, joined], axis=-1)


def _below(values: Values, prefix: str) -> dict[str, Array]:
    return {name.removeprefix(prefix): array for name, array in values.items() if name.startswith(prefix)}
