"""NumPy's layers against both frameworks', where a network's acting step by step would not show a difference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from learning_cases import ACTION, PARTS, VECTOR
from policy_cases import BOTH, FRAMES
from recurrent_cases import window
from test_blocks import arrays, call, close, each, inputs, moved

from duetto.networks import numpy as host
from duetto.networks import numpy_layers
from duetto.networks.initial import initial_parameters
from duetto.networks.spaces import Discrete, Space
from duetto.networks.specs import (
    ActionValues,
    CustomNetwork,
    Deterministic,
    Network,
    Parameter,
    Recurrent,
    Torso,
    Values,
)
from duetto.networks.windows import Window

FRAMEWORKS = ["torch", "jax"]


# ------------------------------------------------------------------------------------------------ over time
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize(("observation", "action", "layers"), [(VECTOR, Discrete(3), 1), (PARTS, ACTION, 2)])
def test_recurrent_layers_over_several_steps(framework: str, kind: Any, observation: Space, action: Space, layers: int):
    """Episodes begin inside the stretch, which forgets what was before, and of one row nothing is carried in."""
    spec = Network(
        Torso(observation, hidden=(6,), recurrent=Recurrent(kind, 5, layers, action)), ActionValues(4, dueling=True)
    )
    values = moved(spec)
    seen = window(observation, action, spec.carry(), 4, 7)
    seen.starts[1, 3] = seen.starts[2, 3] = seen.starts[3, 6] = True
    features, carry = host.build(spec, values).trunk(seen)
    theirs, their_carry = trunk(framework, spec, values, seen)
    close(features, theirs)
    assert carry.keys() == their_carry.keys() == spec.carry().keys()
    for name, part in carry.items():
        close(part, their_carry[name])
        assert part.dtype == np.float32
    nothing = host.build(spec, values).trunk(seen._replace(carry={}))[0]
    zeros = {name: np.zeros_like(part) for name, part in seen.carry.items()}
    np.testing.assert_array_equal(nothing, host.build(spec, values).trunk(seen._replace(carry=zeros))[0])


def trunk(framework: str, spec: Network, values: dict[str, np.ndarray], seen: Window) -> Any:
    array: Any
    if framework == "torch":
        import torch

        from duetto.networks import torch_layers
        from duetto.networks.torch import Built

        array = torch.from_numpy
        net: Any = Built(spec, {name: array(value) for name, value in values.items()}, torch_layers)
    else:
        import jax.numpy as jnp

        from duetto.networks.jax import Built

        array, built = jnp.asarray, Built(spec, values)
        net = built.with_arrays([array(values[name]) for name in built.names])
    given: Any = [each(array, part) for part in seen[:-1]]
    features, carry = net.trunk(Window(*given, at=None))
    return arrays(features), {name: np.asarray(part) for name, part in carry.items()}


# ------------------------------------------------------------------------------------------------ small numbers, large
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_nearly_constant_layer_is_normalised_alike(framework: str):
    """Its variance is that of layer normalisation's ε, which elsewhere hides behind rounding."""
    spec = Network(Torso(VECTOR), Deterministic(2, (8,), "tanh", "layer_norm"))
    values = moved(spec)
    values["layers.0.weight"] *= 1e-3
    values["layers.0.bias"] = np.float32(0.001) * values["layers.0.bias"] + 1
    obs, _ = inputs(6)
    close(call("numpy", spec, values, obs), call(framework, spec, values, obs))


@pytest.mark.parametrize("name", numpy_layers.activations)
def test_an_activation_of_large_numbers_is_finite_and_says_nothing(name: str):
    """Warnings are errors here."""
    found = numpy_layers.activations[name](np.array([-1e30, -1e3, -89, 0, 89, 1e3], np.float32))
    assert found.dtype == np.float32
    assert np.isfinite(found).all()


def test_products_over_several_axes_are_those_of_rows():
    random = np.random.default_rng(0)
    x, weight, bias = (random.normal(size=size).astype(np.float32) for size in ((3, 4, 5), (2, 5), (2,)))
    close(numpy_layers.linear(x, weight, bias), np.einsum("abi,oi->abo", x, weight) + bias)


# ------------------------------------------------------------------------------------------------ what is possible
@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (Network(Torso(PARTS), Deterministic(2)), True),
        (Network(Torso(VECTOR, recurrent=Recurrent("gru", 4, 1, ACTION)), ActionValues(3)), True),
        (Network(Torso(FRAMES), ActionValues(3)), False),
        (Network(Torso(BOTH), ActionValues(3)), False),
        (Network(Torso(VECTOR), Values(2), members=2), False),
        (Network(Torso(VECTOR), Deterministic(2), custom=CustomNetwork(torch=object)), False),
        (Parameter(), False),
    ],
    ids=["parts", "recurrent", "images", "images among parts", "an ensemble", "a user's own", "a number"],
)
def test_what_can_act_in_numpy(spec: Any, expected: bool):
    assert host.possible(spec) is expected
    if expected:
        host.build(spec, initial_parameters(spec, np.random.default_rng(0)))
