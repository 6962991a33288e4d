"""The first parameters of every network, drawn by NumPy: the same numbers in both frameworks."""

from __future__ import annotations

import math

import numpy as np

from duetto.functional import blas
from duetto.networks.specs import Initializer, Network, NetworkSpec, Parameter, Policy, Recurrent, Stack

Values = dict[str, np.ndarray]


def initial_parameters(spec: NetworkSpec, random: np.random.Generator) -> Values:
    """Fresh float32 values for all arrays of a network that is not a user's own: parameters, then statistics."""
    values = {"value": np.full(spec.shape, spec.initial)} if isinstance(spec, Parameter) else _network(spec, random)
    return {name: value.astype(np.float32) for name, value in values.items()}


def parameter_shapes(spec: NetworkSpec) -> dict[str, tuple[int, ...]]:
    """The shapes of `initial_parameters`, known before anything is allocated."""
    if isinstance(spec, Parameter):
        return {"value": spec.shape}
    shapes: dict[str, tuple[int, ...]] = {}
    for torso in spec.torsos:
        recurrent = spec.recurrent.shapes(spec.torso.stack.width) if spec.recurrent else {}
        shapes |= {f"{torso}.recurrent.weights.{name}": shape for name, shape in recurrent.items()}
        for name, shape in spec.torso.convolutions().items():
            shapes |= {f"{torso}.{name}.weight": shape, f"{torso}.{name}.bias": shape[:1]}
        shapes |= _stack_shapes(f"{torso}.", spec.torso.stack, ())
    for head in spec.heads:
        for stack in head.stacks(spec.torso.width):
            shapes |= _stack_shapes("", stack, (spec.members,) if spec.members else ())
        shapes |= head.parameter if isinstance(head, Policy) else {}
    return shapes | spec.statistics


def _stack_shapes(prefix: str, stack: Stack, lead: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    for i, (inputs, outputs) in enumerate(stack.layers):
        name = prefix + stack.layer(i)
        shapes |= {f"{name}.weight": (*lead, outputs, inputs), f"{name}.bias": (*lead, outputs)}
    for i, width in enumerate(stack.norms):
        name = prefix + stack.norm(i)
        shapes |= {f"{name}.weight": (*lead, width), f"{name}.bias": (*lead, width)}
    return shapes


def _network(spec: Network, random: np.random.Generator) -> Values:
    values: Values = {}
    for torso in spec.torsos:
        drawn = _recurrent(spec.recurrent, spec.torso.stack.width, random)
        values |= {f"{torso}.recurrent.weights.{name}": value for name, value in drawn.items()}
    for torso in spec.torsos:
        for name, shape in spec.torso.convolutions().items():
            values |= _layer(f"{torso}.{name}", shape, spec.initializer, random)
        values |= _stack(f"{torso}.", spec.torso.stack, spec.initializer, random)
    for head in spec.heads:
        for stack in head.stacks(spec.torso.width):
            values |= _stack("", stack, spec.initializer, random, spec.members, head.gain)
        if isinstance(head, Policy):
            values |= {name: np.full(shape, head.initial_log_std) for name, shape in head.parameter.items()}
    statistics = {name: np.full(shape, float(name.endswith("variance"))) for name, shape in spec.statistics.items()}
    return values | statistics  # behind what is learned


def _stack(
    prefix: str, stack: Stack, init: Initializer, random: np.random.Generator, members: int = 0, gain: float = 1.0
) -> Values:
    """Fresh values of a stack's layers; `gain` is that of an orthogonal last layer."""
    lead, values = (members,) if members else (), {}
    for i, (inputs, outputs) in enumerate(stack.layers):
        last = bool(stack.outputs) and i == len(stack.layers) - 1
        name = prefix + stack.layer(i)
        values |= _layer(name, (*lead, outputs, inputs), init, random, len(lead), gain if last else None)
    for i, width in enumerate(stack.norms):
        name = prefix + stack.norm(i)
        values |= {f"{name}.weight": np.ones((*lead, width)), f"{name}.bias": np.zeros((*lead, width))}
    return values


def _layer(
    name: str,
    shape: tuple[int, ...],
    init: Initializer,
    random: np.random.Generator,
    lead: int = 0,
    last: float | None = None,
) -> Values:
    """Fresh weight and bias of a layer; `last` is the gain of an orthogonal last layer, None for any other layer."""
    inputs, biases = math.prod(shape[lead + 1 :]), shape[: lead + 1]
    if init.kind == "orthogonal":
        gain, bound = init.gain if last is None else last, 0.0 if init.zero_biases else 1 / math.sqrt(inputs)
        weight = orthogonal(random, shape, gain)
        return {f"{name}.weight": weight, f"{name}.bias": random.uniform(-bound, bound, biases)}
    bound = init.gain / math.sqrt(inputs)
    if last is not None and init.final_bound > 0:
        bound = init.final_bound
    elif init.kind == "normal":
        return {f"{name}.{kind}": random.normal(0.0, init.gain, s) for kind, s in (("weight", shape), ("bias", biases))}
    return {f"{name}.{kind}": random.uniform(-bound, bound, s) for kind, s in (("weight", shape), ("bias", biases))}


def _recurrent(spec: Recurrent | None, inputs: int, random: np.random.Generator) -> Values:
    if spec is None:
        return {}
    bound = 1 / math.sqrt(spec.size)
    values = {}
    for name, shape in spec.shapes(inputs).items():
        if not spec.orthogonal:
            values[name] = random.uniform(-bound, bound, shape)
        else:
            values[name] = orthogonal(random, shape, 1.0) if len(shape) == 2 else np.zeros(shape)
    return values


def orthogonal(random: np.random.Generator, shape: tuple[int, ...], gain: float) -> np.ndarray:
    """A weight whose rows, or whose columns where there are more rows, are at right angles, of length `gain` (Saxe et
    al., 2014).

    All axes but the first are taken as one. Row after row in memory: PyTorch keeps an array's order, and where the
    factorisation left it turned, each gradient was turned, too, and each product read across.
    """
    rows, columns = shape[0], math.prod(shape[1:])
    with blas.one_thread():
        q, r = np.linalg.qr(random.standard_normal((max(rows, columns), min(rows, columns))))
    q *= np.sign(np.diag(r))  # makes the distribution uniform
    return np.ascontiguousarray(gain * (q if rows >= columns else q.T)).reshape(shape)
