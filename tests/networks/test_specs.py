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


def drawn(spec):
    return initial_parameters(spec, np.random.default_rng(0))


def test_names_and_layouts_are_pytorchs_with_the_members_in_front():
    shapes = {name: value.shape for name, value in drawn(critic(hidden=(8,))).items()}
    assert shapes == {
        "layers.0.weight": (2, 8, 5),
        "layers.0.bias": (2, 8),
        "layers.1.weight": (2, 1, 8),
        "layers.1.bias": (2, 1),
    }
    values = drawn(actor(box(3), ()))
    assert {name: value.shape for name, value in values.items()} == {"layers.0.weight": (2, 3), "layers.0.bias": (2,)}
    assert all(value.dtype == np.float32 for value in values.values())


@pytest.mark.parametrize("gain", [1.0, 0.1])
def test_fan_in_is_uniform_within_gain_over_the_root_of_the_inputs(gain):
    """Weights and biases: PyTorch's default. 200 inputs: ±.0707; of a uniform distribution the std is 1/√3 of that."""
    values = drawn(critic(Initializer("fan_in", gain)))
    bound = gain / np.sqrt(200)
    for kind in ("weight", "bias"):
        found = values[f"layers.1.{kind}"]
        assert 0.9 * bound < np.abs(found).max() <= bound
        assert found.std() == pytest.approx(bound / np.sqrt(3), rel=0.15)


def test_normal():
    """S3's N(0, .1) has a std of .1, whatever the inputs."""
    for value in drawn(critic(Initializer("normal", 0.1))).values():
        if value.size > 100:
            assert value.std() == pytest.approx(0.1, rel=0.15)


@pytest.mark.parametrize("kind", ["fan_in", "normal"])
def test_the_last_layer_may_have_a_bound_of_its_own(kind):
    values = drawn(critic(Initializer(kind, 1.0, final_bound=3e-3)))
    assert 2e-3 < np.abs(values["layers.2.weight"]).max() <= 3e-3
    assert np.abs(values["layers.2.bias"]).max() <= 3e-3
    assert np.abs(values["layers.1.weight"]).max() > 3e-3


def test_pitfall_18_members_are_drawn_one_by_one():
    for value in drawn(critic()).values():
        assert not np.any(value[0] == value[1])
