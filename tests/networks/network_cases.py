"""Networks of PyTorch, JAX and NumPy, called with NumPy arrays, and reference definitions in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
from learning_cases import VECTOR, observations
from policy_cases import ACTIONS, small

from duetto.functional.pytree import tree_map
from duetto.networks import initializers, numpy_layers
from duetto.networks.network import Network
from duetto.networks.preprocessing import split_images
from duetto.networks.spaces import Box, Space
from duetto.networks.specs import AnyNetworkSpec, NetworkSpec

Values = dict[str, np.ndarray]
FRAMEWORKS = ["torch", "jax", "numpy"]
ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
}
STRIDES = {8: 4, 4: 2, 3: 1, 2: 1}  # by kernel width: 8, 4 and 3 in the Nature CNN, 2 in the small CNN


def agent(observation: Space = VECTOR, action: str = "choice", **options: Any) -> NetworkSpec:
    """Return the spec of PPO's network."""
    spec = small(**options).networks(observation, ACTIONS[action])["agent"]
    assert isinstance(spec, NetworkSpec)
    return spec


def inputs(size: int, observation: Space = VECTOR) -> tuple[Any, np.ndarray]:
    """Return observations, and actions of two numbers."""
    random = np.random.default_rng(1)
    return observations(observation, size, random), random.uniform(-1, 1, (size, 2)).astype(np.float32)


def initial(spec: AnyNetworkSpec, seed: int = 0) -> Values:
    return initializers.initial_parameters(spec, np.random.default_rng(seed))


def perturbed(spec: NetworkSpec, count: float = 0.0) -> Values:
    """Return initial parameters with random norms and running statistics, as if after `count` batches."""
    random, values = np.random.default_rng(1), initial(spec)
    for name, value in values.items():
        if name.endswith("count"):
            value += np.float32(count)
        elif "norms" in name:
            change = random.normal(0, 0.5, value.shape)
            value += (np.abs(change) if name.endswith("variance") else change).astype(np.float32)
    return values


# ------------------------------------------------------------------------------------------------ networks
def build(kind: str, spec: Any, values: Values | None = None, seed: int = 0, precision: Any = None) -> Any:
    """Build a framework's network with `values` or initial parameters; `precision` is for JAX only."""
    if kind == "numpy":
        layers: Any = numpy_layers
        return Network(spec, initial(spec) if values is None else values, layers)
    if kind == "torch":
        import torch

        from duetto.networks import torch as framework

        net = framework.build(spec, np.random.default_rng(seed))
        if values is not None:
            assert list(net.values) == list(values)
            with torch.no_grad():
                for name, value in values.items():
                    net.values[name].copy_(torch.from_numpy(np.asarray(value)))
        return net
    import jax.numpy as jnp

    from duetto.networks.jax import build as build_jax

    net = build_jax(spec, np.random.default_rng(seed))
    if values is None:
        return net.with_arrays(net.arrays)
    assert net.names == list(values)
    return net.with_arrays([jnp.asarray(value) for value in values.values()], precision or jnp.float32)


def call(kind: str, net: Any, *given: Any, method: str = "__call__", **options: Any) -> Any:
    """Call a network with NumPy arrays and return NumPy arrays."""
    if kind == "numpy":
        return getattr(net, method)(*given, **options)
    if kind == "torch":
        import torch

        with torch.no_grad():
            tensors = tree_map(lambda x: torch.from_numpy(np.ascontiguousarray(x)), given)
            return tree_map(np.asarray, getattr(net, method)(*tensors, **options))
    import jax.numpy as jnp

    return tree_map(np.asarray, getattr(net, method)(*tree_map(jnp.asarray, given), **options))


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


# ------------------------------------------------------------------------------------------------ references
def reference_stack(
    values: Values,
    name: str,
    x: np.ndarray,
    blocks: str = "mlp",
    activation: str = "relu",
    joined: np.ndarray | None = None,
    joins: int = 0,
    last: bool = True,
) -> np.ndarray:
    """Compute a stack in float64, from x (B, in) to (B, out). With `last` the last layer has no activation."""
    values = {key: value.astype(np.float64) for key, value in values.items()}

    def linear(i: int, x: np.ndarray) -> np.ndarray:
        x = x if joined is None or i != joins else np.concatenate([x, joined], axis=1)
        return x @ values[f"{name}.{i}.weight"].T + values[f"{name}.{i}.bias"]

    def norm(i: int, x: np.ndarray) -> np.ndarray:
        centered = x - x.mean(axis=-1, keepdims=True)
        scaled = centered / np.sqrt((centered**2).mean(axis=-1, keepdims=True) + 1e-5)
        return scaled * values[f"{name}_norms.{i}.weight"] + values[f"{name}_norms.{i}.bias"]

    layers, norms = (sum(f"{kind}.{i}.weight" in values for i in range(9)) for kind in (name, f"{name}_norms"))
    if blocks == "simba":
        x = linear(0, x)
        for block in range(norms - 1):
            x = x + linear(2 + 2 * block, np.maximum(linear(1 + 2 * block, norm(block, x)), 0))
        x = norm(norms - 1, x)
        return linear(layers - 1, x) if last else x
    for i in range(layers):
        x = linear(i, x)
        if i < layers - last:
            x = ACTIVATIONS[activation](norm(i, x) if norms else x)
    return x


def reference_agent(
    spec: NetworkSpec, values: Values, obs: Any, blocks: str = "mlp", activation: str = "tanh"
) -> tuple[np.ndarray, np.ndarray]:
    """Return the policy head's outputs, and values."""

    def head(kind: str) -> np.ndarray:
        torso = "torso" if spec.shared else f"{kind}_torso"
        images, vectors = split_images(spec.observation, obs)
        parts = [_features(values, torso, name, image, spec.observation) for name, image in images.items()]
        x = np.concatenate([*parts, *vectors], axis=-1)
        x = reference_stack(values, f"{torso}.layers", x, blocks, activation, last=False) if spec.torso.hidden else x
        return x @ values[f"{kind}_head.weight"].T.astype(np.float64) + values[f"{kind}_head.bias"]

    return head("policy"), head("value")[:, 0]


def _features(values: Values, torso: str, name: str, image: np.ndarray, space: Any) -> np.ndarray:
    """Return image features: convolutions of pixels scaled to [0, 1], flattened with channels last."""
    box = space if isinstance(space, Box) else dict(space.parts)[name]
    x = (image if box.channels_first else np.transpose(image, (0, 3, 1, 2))) / 255
    stem = f"{torso}.convolutions.{name}"
    for i in range(sum(key.startswith(f"{stem}.") for key in values) // 2):
        weight, bias = values[f"{stem}.{i}.weight"], values[f"{stem}.{i}.bias"]
        kernel, stride = weight.shape[-1], STRIDES[weight.shape[-1]]
        windows = np.lib.stride_tricks.sliding_window_view(x, (kernel, kernel), axis=(2, 3))[:, :, ::stride, ::stride]
        x = np.maximum(np.einsum("bchwij,ocij->bohw", windows, weight, optimize=True) + bias[None, :, None, None], 0)
    x = np.transpose(x, (0, 2, 3, 1)).reshape(len(x), -1)
    return np.maximum(x @ values[f"{torso}.features.{name}.weight"].T + values[f"{torso}.features.{name}.bias"], 0)
