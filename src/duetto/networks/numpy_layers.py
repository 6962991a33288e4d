"""The functions that `layers` lists, in NumPy; only those that acting needs, and none for images."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from duetto.networks import layers
from duetto.networks.layers import Cell, State
from duetto.networks.layers import norm as norm

activations: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "silu": lambda x: x / (1 + np.exp(np.minimum(-x, 88))),  # e^88 is just below float32's maximum
}


def linear(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """Return x Wᵀ + b; ensembles are not supported."""
    if x.ndim > 2:  # NumPy would compute one product for each row
        return linear(x.reshape(-1, x.shape[-1]), weight, bias).reshape(*x.shape[:-1], -1)
    return x @ weight.T if bias is None else x @ weight.T + bias


output_linear = linear  # NumPy computes all layers in float32


def cast_input(x: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Return x unchanged, because NumPy computes in float32."""
    return x


def unroll(
    cell: Cell, entering: np.ndarray, starts: np.ndarray, state: State, weight: np.ndarray, bias: np.ndarray
) -> tuple[np.ndarray, State]:
    """Run a recurrent layer over S steps; see `jax_layers.unroll`."""
    outputs = []
    for x, start in zip(entering, starts, strict=True):
        state = tuple(np.where(start[:, None], np.float32(0), part) for part in state)
        state = cell(x, linear(state[0], weight, bias), state)
        outputs.append(state[0])
    return np.stack(outputs), state


recurrent: Callable[..., tuple[np.ndarray, dict[str, np.ndarray]]] = partial(layers.recurrent, linear, unroll)
