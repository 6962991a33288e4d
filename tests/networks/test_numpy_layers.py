"""NumPy's activations, and which networks can act in NumPy. `tests/golden` compares their actions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from learning_cases import ACTION, PARTS, VECTOR
from network_cases import build
from policy_cases import BOTH, FRAMES

from duetto.learners.policy import can_act
from duetto.networks import numpy_layers
from duetto.networks.heads import ActionValueHead, CriticHead, DeterministicHead
from duetto.networks.layers import RecurrentSpec
from duetto.networks.specs import CustomNetwork, NetworkSpec, ParameterSpec, Torso


@pytest.mark.parametrize("name", numpy_layers.activations)
def test_activation_of_large_inputs_is_finite_without_warning(name: str):
    """pytest turns warnings into errors."""
    found = numpy_layers.activations[name](np.array([-1e30, -1e3, -89, 0, 89, 1e3], np.float32))
    assert found.dtype == np.float32
    assert np.isfinite(found).all()


# ------------------------------------------------------------------------------------------------ supported networks
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
    ids=["dict", "recurrent", "images", "dict with images", "ensemble", "custom network", "free parameter"],
)
def test_can_act_in_numpy_by_network_type(spec: Any, expected: bool):
    assert can_act(spec) is expected
    if expected:
        build("numpy", spec)
