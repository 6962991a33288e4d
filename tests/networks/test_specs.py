import numpy as np
import pytest
from learning_cases import box

from duetto.networks.heads import CriticHead, DeterministicHead
from duetto.networks.initializers import initial_parameters
from duetto.networks.specs import Initializer, NetworkSpec, Torso


def critic(initializer=None, **options):
    head = CriticHead(2, **({"hidden": (200, 100)} | options))
    return NetworkSpec(Torso(box(3)), head, members=2, initializer=initializer or Initializer())


def actor(observation, hidden):
    return NetworkSpec(Torso(observation), DeterministicHead(2, hidden))


def initial_values(spec):
    return initial_parameters(spec, np.random.default_rng(0))


def test_parameters_have_pytorch_names_and_leading_member_axis():
    shapes = {name: value.shape for name, value in initial_values(critic(hidden=(8,))).items()}
    assert shapes == {
        "layers.0.weight": (2, 8, 5),
        "layers.0.bias": (2, 8),
        "layers.1.weight": (2, 1, 8),
        "layers.1.bias": (2, 1),
    }
    values = initial_values(actor(box(3), ()))
    assert {name: value.shape for name, value in values.items()} == {"layers.0.weight": (2, 3), "layers.0.bias": (2,)}
    assert all(value.dtype == np.float32 for value in values.values())


def test_fan_in_bound_is_gain_over_sqrt_inputs():
    """PyTorch's default for weights and biases. 200 inputs and gain .1 give ±.00707; the std is 1/√3 of that."""
    values = initial_values(critic(Initializer("fan_in", 0.1)))
    bound = 0.1 / np.sqrt(200)
    for kind in ("weight", "bias"):
        found = values[f"layers.1.{kind}"]
        assert 0.9 * bound < np.abs(found).max() <= bound
        assert found.std() == pytest.approx(bound / np.sqrt(3), rel=0.15)


def test_ensemble_members_have_different_weights_pitfall_18():
    for value in initial_values(critic()).values():
        assert not np.any(value[0] == value[1])
