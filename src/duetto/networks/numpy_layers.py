"""Layers in NumPy: those of `network.Layers` that feed-forward networks over vectors have."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

activations: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "silu": lambda x: x / (1 + np.exp(-x)),
}


def linear(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """See `network.Layers`."""
    return x @ weight.T + bias


def norm(x: np.ndarray, scale: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """See `network.Layers`."""
    centred = x - np.mean(x, -1, keepdims=True)
    return centred / np.sqrt(np.mean(centred**2, -1, keepdims=True) + 1e-5) * scale + shift


def entering(x: np.ndarray, like: np.ndarray) -> np.ndarray:
    """As it is."""
    return x


def leaving(x: np.ndarray) -> np.ndarray:
    """As it is."""
    return x
