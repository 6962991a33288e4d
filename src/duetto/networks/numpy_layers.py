"""The functions that `layers` lists, in NumPy; only those that acting needs, and none for images."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from duetto.networks.layers import RecurrentSpec, SequenceInput

Values = Mapping[str, np.ndarray]
State = tuple[np.ndarray, ...]  # (B, size) each; the first one is also the output

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


def norm(x: np.ndarray, scale: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Apply layer normalization over the last axis."""
    centered = x - np.mean(x, -1, keepdims=True)
    return centered / np.sqrt(np.mean(centered**2, -1, keepdims=True) + 1e-5) * scale + shift


def cast_input(x: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Return x unchanged, because NumPy computes in float32."""
    return x


def recurrent(
    spec: RecurrentSpec, weights: Values, x: np.ndarray, carry: Values, window: SequenceInput
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return outputs (B, S, size) and the hidden states after the last position."""
    after: list[State] = []
    for layer in range(spec.layers):
        x, state = _layer(spec, weights, layer, x, tuple(part[:, layer] for part in carry.values()), window.starts)
        after.append(state)
    return x, {name: np.stack([state[i] for state in after], 1) for i, name in enumerate(carry)}


def _layer(
    spec: RecurrentSpec, weights: Values, layer: int, x: np.ndarray, state: State, starts: np.ndarray
) -> tuple[np.ndarray, State]:
    """Return a layer's outputs (B, S, size) and its last state; `starts` (B, S) zeroes the state before a step."""
    w = {kind: weights[f"{kind}_l{layer}"] for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
    entering = linear(x, w["weight_ih"], w["bias_ih"])  # for all steps at once
    outputs = []
    for t in range(x.shape[1]):
        if starts[:, t].any():
            state = tuple(np.where(starts[:, t, None], np.float32(0), part) for part in state)
        state = CELLS[spec.kind](entering[:, t], linear(state[0], w["weight_hh"], w["bias_hh"]), state)
        outputs.append(state[0])
    return np.stack(outputs, 1), state


def _lstm(entering: np.ndarray, recurrent: np.ndarray, state: State) -> State:
    """One step of an LSTM (Hochreiter & Schmidhuber, 1997); gates in PyTorch's order: input, forget, cell, output."""
    size, gates = state[0].shape[-1], entering + recurrent
    i, f, g, o = (gates[:, k * size : (k + 1) * size] for k in range(4))
    c = _sigmoid(f) * state[1] + _sigmoid(i) * np.tanh(g)
    return _sigmoid(o) * np.tanh(c), c


def _gru(entering: np.ndarray, recurrent: np.ndarray, state: State) -> State:
    """One step of PyTorch's GRU (Cho et al., 2014); gates: reset, update, new."""
    size = state[0].shape[-1]
    (xr, xz, xn), (hr, hz, hn) = (
        tuple(given[:, k * size : (k + 1) * size] for k in range(3)) for given in (entering, recurrent)
    )
    z, n = _sigmoid(xz + hz), np.tanh(xn + _sigmoid(xr + hr) * hn)
    return (n + z * (state[0] - n),)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    """Return the logistic function, without overflow."""
    return 0.5 * np.tanh(0.5 * x) + 0.5


CELLS: dict[str, Callable[[np.ndarray, np.ndarray, State], State]] = {"lstm": _lstm, "gru": _gru}
