"""Policies with value functions as each framework and NumPy build them, called with NumPy arrays; their definition."""

from __future__ import annotations

from typing import Any

import numpy as np
from policy_cases import ACTIONS, VECTOR, small

from duetto.networks import initializers
from duetto.networks import numpy as host
from duetto.networks.heads import StateValueHead
from duetto.networks.preprocessing import split_images
from duetto.networks.spaces import Box, Space
from duetto.networks.specs import NetworkSpec

ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
}
STRIDES = {8: 4, 4: 2, 3: 1, 2: 1}  # by the kernel's width: the Nature network's 8, 4 and 3, and the small one's 2


def agent(observation: Space = VECTOR, action: str = "choice", **options: Any) -> NetworkSpec:
    """What PPO asks for."""
    spec = small(**options).networks(observation, ACTIONS[action])["agent"]
    assert isinstance(spec, NetworkSpec)
    assert isinstance(spec.heads[1], StateValueHead)
    return spec


def parameters(spec: NetworkSpec, seed: int = 0) -> dict[str, np.ndarray]:
    return initializers.initial_parameters(spec, np.random.default_rng(seed))


def call(kind: str, spec: NetworkSpec, obs: Any, values: dict[str, np.ndarray] | None = None) -> list[np.ndarray]:
    """The policy's arrays, the parts of a MultiDiscrete's one after the other, and the values."""
    values = parameters(spec) if values is None else values
    if kind == "numpy":
        policy, value = host.build(spec, values)(obs)
    elif kind == "torch":
        policy, value = _torch(spec, obs, values)
    else:
        policy, value = _jax(spec, obs, values)
    arrays = [array for part in getattr(policy, "parts", (policy,)) for array in part]
    return [np.asarray(array) for array in (*arrays, value)]


def _torch(spec: NetworkSpec, obs: Any, values: dict[str, np.ndarray]) -> Any:
    import torch

    from duetto.networks.torch import build

    net = build(spec, np.random.default_rng(0))
    assert net.values.keys() == values.keys()
    with torch.no_grad():
        for name, value in values.items():
            net.values[name].copy_(torch.from_numpy(value))
        return net(_each(obs, lambda part: torch.from_numpy(np.ascontiguousarray(part))))


def _jax(spec: NetworkSpec, obs: Any, values: dict[str, np.ndarray]) -> Any:
    import jax.numpy as jnp

    from duetto.networks.jax import build

    net = build(spec, np.random.default_rng(0))
    assert sorted(net.names) == sorted(values)
    return net.with_arrays([jnp.asarray(values[name]) for name in net.names])(_each(obs, jnp.asarray))


def _each(obs: Any, array: Any) -> Any:
    return {name: array(part) for name, part in obs.items()} if isinstance(obs, dict) else array(obs)


def definition(spec: NetworkSpec, obs: Any, activation: str = "tanh") -> tuple[np.ndarray, np.ndarray]:
    """What the policy head gives and the values, computed in NumPy from the layers' definitions, in float64."""
    values = {name: value.astype(np.float64) for name, value in parameters(spec).items()}
    names = [name.removesuffix(".weight") for name in values if name.endswith(".weight")]

    def torso(prefix: str) -> np.ndarray:
        images, vectors = split_images(spec.observation, obs)
        parts = [_features(values, prefix, name, image, _box(spec.observation, name)) for name, image in images.items()]
        x = np.concatenate([*parts, *vectors], axis=-1)
        for name in sorted(name for name in names if name.startswith(f"{prefix}.layers.")):
            x = ACTIVATIONS[activation](x @ values[f"{name}.weight"].T + values[f"{name}.bias"])
        return x

    first, last = ("torso", "torso") if "torso.layers.0" in names or spec.shared else ("policy_torso", "value_torso")
    policy = torso(first) @ values["policy_head.weight"].T + values["policy_head.bias"]
    return policy, (torso(last) @ values["value_head.weight"].T + values["value_head.bias"])[:, 0]


def _box(observation: Space, name: str) -> Any:
    return observation if isinstance(observation, Box) else dict(observation.parts)[name]


def _features(values: dict[str, np.ndarray], prefix: str, name: str, image: np.ndarray, space: Box) -> np.ndarray:
    """Convolutions from their definition, on numbers from 0 to 1; what they give is read row by row, channels last."""
    x = (image if space.channels_first else np.transpose(image, (0, 3, 1, 2))) / 255
    stem = f"{prefix}.convolutions.{name}"
    for i in range(sum(key.startswith(f"{stem}.") for key in values) // 2):
        weight, bias = values[f"{stem}.{i}.weight"], values[f"{stem}.{i}.bias"]
        kernel, stride = weight.shape[-1], STRIDES[weight.shape[-1]]
        windows = np.lib.stride_tricks.sliding_window_view(x, (kernel, kernel), axis=(2, 3))[:, :, ::stride, ::stride]
        x = np.maximum(np.einsum("bchwij,ocij->bohw", windows, weight, optimize=True) + bias[None, :, None, None], 0)
    x = (
        np.transpose(x, (0, 2, 3, 1)).reshape(len(x), -1) @ values[f"{prefix}.features.{name}.weight"].T
        + values[f"{prefix}.features.{name}.bias"]
    )
    return np.maximum(x, 0)
