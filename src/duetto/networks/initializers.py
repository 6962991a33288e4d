"""Names, shapes and initial values of a network's arrays. NumPy draws the values, the same for PyTorch and JAX."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from duetto.cpu import one_blas_thread
from duetto.networks.layers import Stack, projected
from duetto.networks.specs import AnyNetworkSpec, Initializer, ParameterSpec

Random = np.random.Generator


class _Array(NamedTuple):
    name: str
    shape: tuple[int, ...]
    draw: Callable[[Random, tuple[int, ...]], np.ndarray]  # draws the initial value


def initial_parameters(spec: AnyNetworkSpec, random: Random) -> dict[str, np.ndarray]:
    """Draw a network's initial arrays (float32): parameters, then running statistics. Not for custom networks."""
    values = {array.name: array.draw(random, array.shape).astype(np.float32) for array in _arrays(spec)}
    return values | projected(spec.projected_stacks, values)


def parameter_shapes(spec: AnyNetworkSpec) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the arrays that `initial_parameters` draws, without drawing them."""
    return {array.name: array.shape for array in _arrays(spec)}


def _arrays(spec: AnyNetworkSpec) -> Iterator[_Array]:
    """Yield all arrays in the order in which they are drawn."""
    if isinstance(spec, ParameterSpec):
        yield _Array("value", spec.shape, _constant(spec.initial))
        return
    init = spec.initializer
    for torso in spec.torsos:
        if spec.recurrent:
            for name, shape in spec.recurrent.shapes(spec.torso.stack.width).items():
                draw = _uniform(1 / math.sqrt(spec.recurrent.size))
                if spec.recurrent.orthogonal:
                    draw = _orthogonal(1.0) if len(shape) == 2 else _constant(0.0)
                yield _Array(f"{torso}.recurrent.weights.{name}", shape, draw)
    for torso in spec.torsos:
        for name, shape in spec.torso.convolutions().items():
            yield from _layer(f"{torso}.{name}", shape, init)
        yield from _stack(f"{torso}.", spec.torso.stack, init)
    lead = (spec.members,) if spec.members else ()
    for head, stacks in zip(spec.heads, spec.stacks, strict=True):
        for stack in stacks:
            yield from _stack("", stack, init, lead, head.gain)
        for name, (shape, initial) in head.parameters.items():
            yield _Array(name, (*lead, *shape), _constant(initial))
    for name, shape in spec.statistics.items():
        yield _Array(name, shape, _constant(float(name.endswith("variance"))))


def _stack(
    prefix: str, stack: Stack, init: Initializer, lead: tuple[int, ...] = (), gain: float = 1.0
) -> Iterator[_Array]:
    """Yield a stack's arrays. `gain` is for an orthogonal last layer; `lead` is (M,) for an ensemble, else ()."""
    for i, (inputs, outputs) in enumerate(stack.layers):
        last = bool(stack.outputs) and i == len(stack.layers) - 1
        shape, of_last = (*lead, outputs, inputs), gain if last else None
        yield from _layer(prefix + stack.layer(i), shape, init, len(lead), of_last, biased=last or stack.biases)
    for i, width in enumerate(stack.norms):
        yield _Array(f"{prefix}{stack.norm(i)}.weight", (*lead, width), _constant(1.0))
        if i != stack.root_mean_square:
            yield _Array(f"{prefix}{stack.norm(i)}.bias", (*lead, width), _constant(0.0))


def _layer(
    name: str,
    shape: tuple[int, ...],
    init: Initializer,
    lead: int = 0,
    last_gain: float | None = None,
    biased: bool = True,
) -> Iterator[_Array]:
    """Yield weight and bias of a layer. `lead` is 1 if `shape` starts with an ensemble's members, else 0.

    `last_gain` is the gain of an orthogonal last layer; None for all other layers.
    """
    fan_in = math.prod(shape[lead + 1 :])
    weight = bias = _uniform(init.gain / math.sqrt(fan_in))
    if last_gain is not None and init.final_bound > 0:
        weight = bias = _uniform(init.final_bound)
    elif init.kind == "orthogonal":
        weight = _orthogonal(init.gain if last_gain is None else last_gain, lead)
        bias = _uniform(0.0 if init.zero_biases else 1 / math.sqrt(fan_in))
    elif init.kind == "normal":
        weight = bias = lambda random, shape: random.normal(0.0, init.gain, shape)
    yield _Array(f"{name}.weight", shape, weight)
    if biased:
        yield _Array(f"{name}.bias", shape[: lead + 1], bias)


def _constant(value: float) -> Callable[[Random, tuple[int, ...]], np.ndarray]:
    return lambda _, shape: np.full(shape, value)


def _uniform(bound: float) -> Callable[[Random, tuple[int, ...]], np.ndarray]:
    return lambda random, shape: random.uniform(-bound, bound, shape)


def _orthogonal(gain: float, lead: int = 0) -> Callable[[Random, tuple[int, ...]], np.ndarray]:
    """Return a function that draws an orthogonal weight; with a `lead` axis, one for each member of the ensemble."""
    if not lead:
        return lambda random, shape: orthogonal(random, shape, gain)
    return lambda random, shape: np.stack([orthogonal(random, shape[1:], gain) for _ in range(shape[0])])


def orthogonal(random: Random, shape: tuple[int, ...], gain: float) -> np.ndarray:
    """Draw a weight with orthogonal rows, or columns if these are fewer, of norm `gain` (Saxe et al., 2014).

    All axes except the first are treated as one. The array is contiguous, because PyTorch keeps an array's memory order
    and products with transposed weights are slower.
    """
    rows, columns = shape[0], math.prod(shape[1:])
    with one_blas_thread():
        q, r = np.linalg.qr(random.standard_normal((max(rows, columns), min(rows, columns))))
    q *= np.sign(np.diag(r))  # makes the distribution uniform
    return np.ascontiguousarray(gain * (q if rows >= columns else q.T)).reshape(shape)
