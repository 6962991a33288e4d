"""The first parameters of every network, drawn by NumPy: the same numbers in both frameworks."""

from __future__ import annotations

import math

import numpy as np

from duetto.networks.spaces import Box
from duetto.networks.specs import Actor, ActorCritic, Critic, Initializer, NetworkSpec, QNetwork, Recurrent


def initial_parameters(spec: NetworkSpec, random: np.random.Generator) -> dict[str, np.ndarray]:
    """Fresh values for every parameter of a network that is not a user's own."""
    match spec:
        case ActorCritic():
            values = _actor_critic(spec, random)
        case QNetwork():
            values = _q_network(spec, random)
        case _:
            values = _perceptron(spec, random)
    return {name: value.astype(np.float32) for name, value in values.items()}


def parameter_shapes(spec: NetworkSpec) -> dict[str, tuple[int, ...]]:
    """The shapes of `initial_parameters`, known before anything is allocated."""
    match spec:
        case ActorCritic():
            heads = {"policy_head": (spec.head, spec.torso.width), "value_head": (1, spec.torso.width)}
            layers = {f"{torso}.{name}": shape for torso in spec.torsos for name, shape in spec.torso.shapes().items()}
            shapes = _with_biases(layers | heads)
            for torso in spec.torsos:
                shapes |= _recurrent_shapes(spec.recurrent, spec.torso.unrolled, f"{torso}.")
            return shapes | ({"log_std": (spec.action.size,)} if isinstance(spec.action, Box) else {})
        case QNetwork():
            layers = {f"torso.{name}": shape for name, shape in spec.torso.shapes().items()}
            for stream, sizes in spec.streams.items():
                layers |= {f"{stream}.{i}": (outputs, inputs) for i, (inputs, outputs) in enumerate(sizes)}
            return _with_biases(layers) | _recurrent_shapes(spec.recurrent, spec.torso.unrolled, "torso.")
        case _:
            layers = {f"layers.{i}": (outputs, inputs) for i, (inputs, outputs) in enumerate(spec.layers)}
            lead = (spec.members,) if spec.members else ()
            shapes = {name: (*lead, *shape) for name, shape in _with_biases(layers).items()}
            return shapes | _recurrent_shapes(spec.recurrent, spec.observation.size, "")


def _with_biases(layers: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    return {
        f"{name}.{kind}": shape if kind == "weight" else shape[:1]
        for name, shape in layers.items()
        for kind in ("weight", "bias")
    }


def _recurrent_shapes(spec: Recurrent | None, inputs: int, prefix: str) -> dict[str, tuple[int, ...]]:
    shapes = spec.shapes(inputs) if spec else {}
    return {f"{prefix}recurrent.weights.{name}": shape for name, shape in shapes.items()}


def _perceptron(spec: Actor | Critic, random: np.random.Generator) -> dict[str, np.ndarray]:
    values = _recurrent(spec.recurrent, spec.observation.size, random)
    lead = (spec.members,) if spec.members else ()
    for i, (inputs, outputs) in enumerate(spec.layers):
        last = i == len(spec.layers) - 1
        for kind, shape in (("weight", (*lead, outputs, inputs)), ("bias", (*lead, outputs))):
            values[f"layers.{i}.{kind}"] = _draw(spec.initializer, random, shape, inputs, last)
    return values


def _actor_critic(spec: ActorCritic, random: np.random.Generator) -> dict[str, np.ndarray]:
    """Orthogonal weights with gain √2 below the heads, 1 for the value, as in OpenAI Baselines."""
    layers: dict[str, tuple[tuple[int, ...], float]] = {}
    for torso in spec.torsos:
        layers |= {f"{torso}.{name}": (shape, math.sqrt(2)) for name, shape in spec.torso.shapes().items()}
    layers["policy_head"] = ((spec.head, spec.torso.width), spec.policy_gain)
    layers["value_head"] = ((1, spec.torso.width), 1.0)
    values: dict[str, np.ndarray] = {}
    for torso in spec.torsos:
        drawn = _recurrent(spec.recurrent, spec.torso.unrolled, random)
        values |= {f"{torso}.{name}": value for name, value in drawn.items()}
    for name, (shape, gain) in layers.items():
        values[f"{name}.weight"] = orthogonal(random, shape, gain)
        bound = 0.0 if spec.zero_biases else 1 / math.sqrt(math.prod(shape[1:]))
        values[f"{name}.bias"] = random.uniform(-bound, bound, shape[:1])
    if isinstance(spec.action, Box):
        values["log_std"] = np.full(spec.action.size, spec.initial_log_std)
    return values


def _q_network(spec: QNetwork, random: np.random.Generator) -> dict[str, np.ndarray]:
    """PyTorch's default, U(±1/√inputs)."""
    values = {}
    shapes = {f"torso.{name}": shape for name, shape in spec.torso.shapes().items()}
    for stream, layers in spec.streams.items():
        shapes |= {f"{stream}.{i}": (outputs, inputs) for i, (inputs, outputs) in enumerate(layers)}
    for name, shape in shapes.items():
        bound = 1 / math.sqrt(math.prod(shape[1:]))
        values[f"{name}.weight"] = random.uniform(-bound, bound, shape)
        values[f"{name}.bias"] = random.uniform(-bound, bound, shape[:1])
    drawn = _recurrent(spec.recurrent, spec.torso.unrolled, random)
    return values | {f"torso.{name}": value for name, value in drawn.items()}


def _recurrent(spec: Recurrent | None, inputs: int, random: np.random.Generator) -> dict[str, np.ndarray]:
    if spec is None:
        return {}
    bound = 1 / math.sqrt(spec.size)
    values = {}
    for name, shape in spec.shapes(inputs).items():
        if not spec.orthogonal:
            value = random.uniform(-bound, bound, shape)
        else:
            value = orthogonal(random, shape, 1.0) if len(shape) == 2 else np.zeros(shape)
        values[f"recurrent.weights.{name}"] = value
    return values


def orthogonal(random: np.random.Generator, shape: tuple[int, ...], gain: float) -> np.ndarray:
    """Rows, or where there are more of them columns, at right angles, of length `gain` (Saxe et al., 2014).

    All axes but the first are taken as one.
    """
    rows, columns = shape[0], math.prod(shape[1:])
    q, r = np.linalg.qr(random.standard_normal((max(rows, columns), min(rows, columns))))
    q *= np.sign(np.diag(r))  # makes the distribution uniform
    return gain * (q if rows >= columns else q.T).reshape(shape)


def _draw(
    init: Initializer, random: np.random.Generator, shape: tuple[int, ...], inputs: int, last: bool
) -> np.ndarray:
    if last and init.final_bound > 0:
        return random.uniform(-init.final_bound, init.final_bound, shape)
    if init.kind == "normal":
        return random.normal(0.0, init.gain, shape)
    bound = init.gain / math.sqrt(inputs)
    return random.uniform(-bound, bound, shape)
