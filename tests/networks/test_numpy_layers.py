"""NumPy's layers against both frameworks', where a network's acting step by step would not show a difference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from built import build, call, close, inputs, moved
from learning_cases import ACTION, PARTS, VECTOR
from policy_cases import BOTH, FRAMES
from recurrent_cases import window

from duetto.learners.policy import can_act
from duetto.networks import numpy_layers
from duetto.networks.heads import ActionValueHead, CriticHead, DeterministicHead
from duetto.networks.layers import RecurrentSpec
from duetto.networks.spaces import Discrete, Space
from duetto.networks.specs import CustomNetwork, NetworkSpec, ParameterSpec, Torso

FRAMEWORKS = ["torch", "jax"]


# ------------------------------------------------------------------------------------------------ over time
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize(("observation", "action", "layers"), [(VECTOR, Discrete(3), 1), (PARTS, ACTION, 2)])
def test_recurrent_layers_over_several_steps(framework: str, kind: Any, observation: Space, action: Space, layers: int):
    """Episodes start inside the stretch, which forgets what was before, and of one row nothing is carried in."""
    spec = NetworkSpec(
        Torso(observation, hidden=(6,), recurrent=RecurrentSpec(kind, 5, layers, action)),
        ActionValueHead(4, dueling=True),
    )
    values = moved(spec)
    seen = window(observation, action, spec.carry(), 4, 7)
    seen.starts[1, 3] = seen.starts[2, 3] = seen.starts[3, 6] = True
    features, carry = build("numpy", spec, values).trunk(seen)
    theirs, their_carry = call(
        framework, build(framework, spec, values), seen._replace(query_steps=None), method="trunk"
    )
    close(features, theirs)
    assert carry.keys() == their_carry.keys() == spec.carry().keys()
    for name, part in carry.items():
        close(part, their_carry[name])
        assert part.dtype == np.float32
    nothing = build("numpy", spec, values).trunk(seen._replace(carry={}))[0]
    zeros = {name: np.zeros_like(part) for name, part in seen.carry.items()}
    np.testing.assert_array_equal(nothing, build("numpy", spec, values).trunk(seen._replace(carry=zeros))[0])


# ------------------------------------------------------------------------------------------------ small numbers, large
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_nearly_constant_layer_is_normalised_alike(framework: str):
    """Its variance is that of layer normalisation's ε, which elsewhere hides behind rounding."""
    spec = NetworkSpec(Torso(VECTOR), DeterministicHead(2, (8,), "tanh", "layer_norm"))
    values = moved(spec)
    values["layers.0.weight"] *= 1e-3
    values["layers.0.bias"] = np.float32(0.001) * values["layers.0.bias"] + 1
    obs, _ = inputs(6)
    close(*(call(kind, build(kind, spec, values), obs) for kind in ("numpy", framework)))


@pytest.mark.parametrize("name", numpy_layers.activations)
def test_an_activation_of_large_numbers_is_finite_and_says_nothing(name: str):
    """Warnings are errors here."""
    found = numpy_layers.activations[name](np.array([-1e30, -1e3, -89, 0, 89, 1e3], np.float32))
    assert found.dtype == np.float32
    assert np.isfinite(found).all()


# ------------------------------------------------------------------------------------------------ what is possible
@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (NetworkSpec(Torso(PARTS), DeterministicHead(2)), True),
        (NetworkSpec(Torso(VECTOR, recurrent=RecurrentSpec("gru", 4, 1, ACTION)), ActionValueHead(3)), True),
        (NetworkSpec(Torso(FRAMES), ActionValueHead(3)), False),
        (NetworkSpec(Torso(BOTH), ActionValueHead(3)), False),
        (NetworkSpec(Torso(VECTOR), CriticHead(2), members=2), False),
        (NetworkSpec(Torso(VECTOR), DeterministicHead(2), custom=CustomNetwork(torch=object)), False),
        (ParameterSpec(), False),
    ],
    ids=["parts", "recurrent", "images", "images among parts", "an ensemble", "a user's own", "a number"],
)
def test_what_can_act_in_numpy(spec: Any, expected: bool):
    assert can_act(spec) is expected
    if expected:
        build("numpy", spec)
