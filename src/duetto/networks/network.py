"""The forward pass of a `NetworkSpec`, written once for PyTorch, JAX and NumPy.

A network is its spec and its arrays by name; a framework's `Layers` compute its layers. Every network is a trunk and a
head. A feedforward one is called with observations (B, ...). Of a recurrent one, `trunk` turns a `SequenceInput` into
features of all positions and the carry after them, and `head` turns features into outputs; `RecurrentUnroll` joins
both.
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

        With `train`, batch normalization uses the statistics of these B rows and updates the running ones. If the
        observations have a mask, forbidden actions have the probability 0 and the value -∞; see `masks`.
        """
        obs, mask = masks.split_mask(obs)
        return self.spec.mask(self.head(self._features(obs), *inputs, train=train), mask)

    def q1(self, obs: Any, *inputs: Array) -> Array:
        """Return the output of an ensemble's first member, computing only this one."""
        return self.q1_head(self._features(obs), *inputs)

    def trunk(self, window: SequenceInput) -> tuple[Features, Carry]:
        """Return features (B, S, width) of each torso, and the carry after the last position."""
        spec, shape = self.spec.recurrent, window.previous_reward.shape
        assert spec is not None
        obs, _ = masks.split_mask(window.obs)  # see `RecurrentUnroll`
        merged = tree_map(lambda part: array_namespace(part).reshape(part, (-1, *part.shape[2:])), obs)
        parts = split_images(self.spec.observation, merged)
        found, carry = [], {}
        for torso in self.spec.torsos:
            x = self._encoded(torso, *parts)
            xp = array_namespace(x)
            previous = encode_action(spec.action, window.previous_action), window.previous_reward[..., None]
            x = xp.concat([xp.reshape(x, (*shape, -1)), *(xp.astype(part, x.dtype) for part in previous)], axis=-1)
            prefix = f"{torso}/" if len(self.spec.heads) > 1 else ""
            weights = _below(self.values, f"{torso}.recurrent.weights.")
            zeros = xp.zeros((shape[0], spec.layers, spec.size), dtype=xp.float32, device=device(x))
            before = {name: window.carry.get(prefix + name, zeros) for name in spec.state()}
            x, state = self._layers.recurrent(spec, weights, x, before, window)
            found.append(x)
            carry |= {f"{prefix}{key}": part for key, part in state.items()}
        return tuple(found), carry

    def head(self, features: Features, *inputs: Array, train: bool = False) -> Any:
        """Return outputs (...) or (..., n) for features (..., width) and inputs (..., A); of an ensemble (M, ...)."""
        if not self.spec.members:
            return self._heads(features, inputs, self.values, self.updated_stats if train else None)
        xp, lead = array_namespace(*features), features[0].shape[:-1]
        x, *given = (xp.reshape(part, (-1, part.shape[-1])) for part in (*features, *inputs))
        members = self._layers.split_members(self.values)
        if members is None:
            found = self._heads((x,), given, self.values, self.updated_stats if train else None)
        else:
            each: list[dict[str, Array]] = [{} for _ in members]
            found = xp.stack(
                [
                    self._heads((x,), given, values, stats if train else None)
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
        return tuple(self._encoded(torso, *parts) for torso in self.spec.torsos)

    def _encoded(self, torso: str, images: dict[str, Array], vectors: list[Array]) -> Array:
        """Return features (B, width) before recurrent layers."""
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
        """Return the heads' outputs; new running statistics go into `stats`, None when not training."""
        layers, found = self._layers, []
        for i, (head, stacks) in enumerate(zip(self.spec.heads, self.spec.stacks, strict=True)):
            x = layers.cast_input(features[i % len(features)], next(iter(values.values())))
            outputs = [stack.forward(StackArrays(stack, layers, values, "", stats), x, *inputs) for stack in stacks]
            found.append(head.result(outputs, values))
        return tuple(found) if isinstance(self.spec.head, tuple) else found[0]

    def _pair(self, name: str) -> tuple[Array, Array]:
        return self.values[f"{name}.weight"], self.values[f"{name}.bias"]


def _below(values: Values, prefix: str) -> dict[str, Array]:
    return {name.removeprefix(prefix): array for name, array in values.items() if name.startswith(prefix)}


# ---------------------------------------------------------------------------------------------------- recurrence
class RecurrentUnroll:
    """A recurrent network that losses and policies call like a feedforward one.

    It runs over each window once, however many positions of it are queried.

    A loss queries the online network twice, for the actions taken and for the best next ones: two `query_steps` of the
    same window. Make a new one for each evaluation of a loss.

    Attributes:
        carry: The network's hidden states after the last window, by name.
    """

    def __init__(self, network: Any, name: str, members: int = 0) -> None:
        """`name` is the key of its hidden states in windows: a target network has its source's.

        `members` is the size of an ensemble, the first axis of its outputs, before (B, ...).
        """
        self._network, self._prefix, self._members = network, f"{name}/", members
        self._seen: list[_Run] = []
        self.carry: dict[str, Array] = {}

    def __call__(self, window: SequenceInput, *inputs: Any, train: bool = False) -> Any:
        """Return the outputs at the window's positions, each a row for batch normalization."""
        run, mask = self._run(window), masks.mask_of(window.obs)
        if inputs or train or self._members or len(run.features) > 1:  # of the positions asked for alone
            found = self._network.head(_at(run.features, window.query_steps), *inputs, train=train)
            return found if mask is None else self._network.spec.mask(found, _at(mask, window.query_steps))
        if run.outputs is None:
            found = self._network.head(run.features)
            run.outputs = found if mask is None else self._network.spec.mask(found, mask)
        return _at(run.outputs, window.query_steps)

    @property
    def updated_stats(self) -> dict[str, Array]:
        """The network's running statistics after this pass."""
        return self._network.updated_stats

    def q1(self, window: SequenceInput, *inputs: Any) -> Array:
        """Return the outputs of an ensemble's first member."""
        return self._network.q1_head(_at(self._run(window).features, window.query_steps), *inputs)

    def _run(self, window: SequenceInput) -> _Run:
        """Return the pass over a window, shared by windows of the same steps with other positions."""
        run = next((run for run in self._seen if run.of.previous_reward is window.previous_reward), None)
        if run is None:
            run = _Run(window, *self._network.trunk(window.within(self._prefix)))
            self._seen.append(run)
        self.carry = {f"{self._prefix}{key}": part for key, part in run.carry.items()}
        return run


@dataclass
class _Run:
    """One pass of a network over a window, which is kept so that its arrays' identity stays unique."""

    of: SequenceInput
    features: tuple[Array, ...]  # of each torso
    carry: dict[str, Array]
    outputs: Any = None  # the head's, of all positions, once they were asked for


def _at(tree: Any, at: Array | None) -> Any:
    """Return arrays (B, S, ...) at positions (B, T) as (B, T, ...); without positions (S = 1) as (B, ...)."""

    def chosen(array: Array) -> Array:
        if at is None:
            return array[:, 0]
        return array_namespace(array).take_along_axis(array, at if array.ndim == 2 else at[..., None], axis=1)

    return tree_map(chosen, tree)
