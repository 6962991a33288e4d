"""The forward pass of a `NetworkSpec`, written once for PyTorch, JAX and NumPy.

A network consists of its spec, its arrays by name, and the module that computes layers in one framework. A feedforward
network is called with observations (B, ...). A recurrent network has two steps, which `RecurrentUnroll` calls: `trunk`
turns a `SequenceInput` into features of all positions and the last hidden states; `head` turns features into outputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from array_api_compat import array_namespace, device

from duetto.functional.pytree import tree_map
from duetto.networks import masks, specs
from duetto.networks.layers import Array, Carry, SequenceInput, StackArrays, Values
from duetto.networks.preprocessing import convolutions, encode_action, split_images

Features = tuple[Array, ...]  # (..., width) of each torso


class Network:
    """The network of a `NetworkSpec`.

    Attributes:
        spec: The network's spec.
        values: Its arrays by name.
        updated_stats: The running statistics after the last call with `train`, by name; learners store them.
    """

    spec: specs.NetworkSpec
    values: Values

    def __init__(self, spec: specs.NetworkSpec, values: Values, layers: Any) -> None:
        self.spec, self.values, self._layers = spec, values, layers
        self.updated_stats: dict[str, Array] = {}

    def __call__(self, obs: Any, *inputs: Array, train: bool = False) -> Any:
        """Return the heads' outputs for observations (B, ...) and `inputs` such as actions.

        With `train`, batch normalization uses the mean and variance of these B rows and updates the running ones.
        If the observations have a mask, forbidden actions have the probability 0 or the value -1e15; see `masks`.
        """
        obs, mask = masks.split_mask(obs)
        return self.spec.mask(self.head(self._features(obs), *inputs, train=train), mask)

    def q1(self, obs: Any, *inputs: Array) -> Array:
        """Return the output of an ensemble's first member, without computing the other members."""
        return self.q1_head(self._features(obs), *inputs)

    def trunk(self, window: SequenceInput, name: str) -> tuple[Features, Carry]:
        """Return each torso's features (B, S, width), and the hidden states after the last position.

        `name` is the prefix of the network's hidden states, before and after.
        """
        spec, shape = self.spec.recurrent, window.previous_reward.shape
        assert spec is not None
        obs, _ = masks.split_mask(window.obs)  # `RecurrentUnroll` applies the mask
        merged = tree_map(lambda part: array_namespace(part).reshape(part, (-1, *part.shape[2:])), obs)
        parts = split_images(self.spec.observation, merged)
        found, carry = [], {}
        for torso in self.spec.torsos:
            x = self._encoded(torso, *parts)
            xp = array_namespace(x)
            previous = encode_action(spec.action, window.previous_action), window.previous_reward[..., None]
            x = xp.concat([xp.reshape(x, (*shape, -1)), *(xp.astype(part, x.dtype) for part in previous)], axis=-1)
            prefix = f"{name}/{torso}/" if len(self.spec.heads) > 1 else f"{name}/"
            stem = f"{torso}.recurrent.weights."
            weights = {key.removeprefix(stem): x for key, x in self.values.items() if key.startswith(stem)}
            zeros = xp.zeros((shape[0], spec.layers, spec.size), dtype=xp.float32, device=device(x))
            before = {key: window.carry.get(prefix + key, zeros) for key in spec.state()}
            x, state = self._layers.recurrent(spec, weights, x, before, window)
            found.append(x)
            carry |= {f"{prefix}{key}": part for key, part in state.items()}
        return tuple(found), carry

    def head(self, features: Features, *inputs: Array, train: bool = False) -> Any:
        """Return the heads' outputs: (...) or (..., n), for an ensemble with a leading axis of M members.

        Each torso's features are (..., width); `inputs`, such as actions, are (..., A).
        """
        stats = self.updated_stats if train else None
        if not self.spec.members:
            return self._heads(features, inputs, self.values, stats)
        xp, lead = array_namespace(*features), features[0].shape[:-1]
        x, *joined = (xp.reshape(part, (-1, part.shape[-1])) for part in (*features, *inputs))
        members = self._layers.split_members(self.values)
        if members is None:
            outputs = self._heads((x,), joined, self.values, stats)
        else:
            each: list[dict[str, Array]] = [{} for _ in members]
            pairs = zip(members, each, strict=True)
            outputs = xp.stack([self._heads((x,), joined, values, own if train else None) for values, own in pairs])
            self.updated_stats.update({name: xp.stack([own[name] for own in each]) for name in each[0]})
        return xp.reshape(outputs, (self.spec.members, *lead, *outputs.shape[2:]))

    def q1_head(self, features: Features, *inputs: Array) -> Array:
        """Return the outputs (...) of an ensemble's first member."""
        values = {name: array if name.startswith("torso") else array[0] for name, array in self.values.items()}
        return self._heads(features, inputs, values)

    # ------------------------------------------------------------------------------------------------ torsos
    def _features(self, obs: Any) -> Features:
        parts = split_images(self.spec.observation, obs)
        return tuple(self._encoded(torso, *parts) for torso in self.spec.torsos)

    def _encoded(self, torso: str, images: dict[str, Array], vectors: list[Array]) -> Array:
        """Return a torso's features (B, width) before its recurrent layers."""
        spec, like = self.spec.torso, next(iter(self.values.values()))
        parts = [self._image(torso, name, image, like) for name, image in images.items()]
        parts += [self._layers.cast_input(vector, like) for vector in vectors]
        x = parts[0] if len(parts) == 1 else array_namespace(*parts).concat(parts, axis=-1)
        if not spec.hidden:
            return x
        return spec.stack.forward(StackArrays(spec.stack, self._layers, self.values, f"{torso}."), x)

    def _image(self, torso: str, name: str, image: Array, like: Array) -> Array:
        space = self.spec.torso.images[name]
        x = self._layers.prepare_image(image, space.channels_first, like)
        for i, (_, _, stride) in enumerate(convolutions(space)):
            weight, bias = self._pair(f"{torso}.convolutions.{name}.{i}")
            x = self._layers.conv_relu(x, weight, bias, stride, 1.0 if i else 1 / 255)
        x = self._layers.linear(self._layers.flatten(x), *self._pair(f"{torso}.features.{name}"))
        return self._layers.activations["relu"](x)

    # ------------------------------------------------------------------------------------------------ heads
    def _heads(self, features: Features, inputs: Any, values: Values, stats: dict[str, Array] | None = None) -> Any:
        """Return the heads' outputs; `stats` collects new running statistics, or is None when not training."""
        layers, results = self._layers, []
        for i, (head, stacks) in enumerate(zip(self.spec.heads, self.spec.stacks, strict=True)):
            x = layers.cast_input(features[i % len(features)], next(iter(values.values())))
            outputs = [stack.forward(StackArrays(stack, layers, values, "", stats), x, *inputs) for stack in stacks]
            results.append(head.result(outputs, values))
        return tuple(results) if isinstance(self.spec.head, tuple) else results[0]

    def _pair(self, name: str) -> tuple[Array, Array]:
        return self.values[f"{name}.weight"], self.values[f"{name}.bias"]


# ---------------------------------------------------------------------------------------------------- recurrence
class RecurrentUnroll:
    """A recurrent network that losses and policies call like a feedforward one.

    It processes each batch of sequences only once. A loss often calls the online network twice with the same sequences
    and different `query_steps`: for the actions taken, and for the best next actions. Each evaluation of a loss needs a
    new `RecurrentUnroll`.

    Attributes:
        carry: The network's hidden states after the sequences of the last call, by name.
    """

    def __init__(self, network: Any, name: str) -> None:
        """`name` is the prefix of hidden states in `SequenceInput.carry`; target networks have their source's name."""
        self._network, self._name = network, name
        self._seen: list[_Run] = []
        self.carry: dict[str, Array] = {}

    def __call__(self, window: SequenceInput, *inputs: Any, train: bool = False) -> Any:
        """Return the outputs at `query_steps`. Batch normalization treats each position as a row."""
        run, mask = self._run(window), masks.mask_of(window.obs)
        if inputs or train or self._network.spec.members or len(run.features) > 1:  # compute only the queried positions
            outputs = self._network.head(_at(run.features, window.query_steps), *inputs, train=train)
            return outputs if mask is None else self._network.spec.mask(outputs, _at(mask, window.query_steps))
        if run.outputs is None:
            outputs = self._network.head(run.features)
            run.outputs = outputs if mask is None else self._network.spec.mask(outputs, mask)
        return _at(run.outputs, window.query_steps)

    @property
    def updated_stats(self) -> dict[str, Array]:
        """The network's running statistics after the last call with `train`."""
        return self._network.updated_stats

    def q1(self, window: SequenceInput, *inputs: Any) -> Array:
        """Return the outputs of an ensemble's first member at `query_steps`."""
        return self._network.q1_head(_at(self._run(window).features, window.query_steps), *inputs)

    def _run(self, window: SequenceInput) -> _Run:
        """Return the results for `window`; compute them once for inputs that differ only in `query_steps`."""
        run = next((run for run in self._seen if run.of.previous_reward is window.previous_reward), None)
        if run is None:
            run = _Run(window, *self._network.trunk(window, self._name))
            self._seen.append(run)
        self.carry = run.carry
        return run


@dataclass
class _Run:
    """The results of one pass of a network over a batch of sequences (a `SequenceInput`)."""

    of: SequenceInput
    features: tuple[Array, ...]  # of each torso
    carry: dict[str, Array]
    outputs: Any = None  # the head's outputs at all positions; None if not computed yet


def _at(tree: Any, at: Array | None) -> Any:
    """Select the positions `at` (B, T) of arrays (B, S, ...); the results are (B, T, ...).

    If `at` is None, S must be 1: remove this axis.
    """

    def chosen(array: Array) -> Array:
        if at is None:
            return array[:, 0]
        return array_namespace(array).take_along_axis(array, at if array.ndim == 2 else at[..., None], axis=1)

    return tree_map(chosen, tree)
