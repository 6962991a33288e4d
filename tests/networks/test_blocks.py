"""Layer stacks (plain, layer normalization, SimBa) compared with NumPy definitions; weight projection."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from learning_cases import ACTION, PARTS, VECTOR
from network_cases import (
    ACTIVATIONS,
    FRAMEWORKS,
    build,
    call,
    close,
    initial,
    inputs,
    perturbed,
    reference_agent,
    reference_stack,
)

from duetto.algorithms import PPO, SAC
from duetto.errors import UsageError
from duetto.networks.heads import (
    CriticHead,
    DeterministicHead,
    PolicyHead,
    SquashedGaussianHead,
    StateValueHead,
)
from duetto.networks.layers import Stack, projected
from duetto.networks.preprocessing import encode
from duetto.networks.specs import Initializer, NetworkSpec, Torso


# 1 row and 40 rows: PyTorch multiplies few rows itself, and many rows with oneDNN on AMD processors.
@pytest.mark.parametrize("kind", FRAMEWORKS)
@pytest.mark.parametrize(
    ("size", "blocks", "hidden", "activation"),
    [
        *((40, "mlp", (16, 12), activation) for activation in ACTIVATIONS),
        (1, "layer_norm", (16, 12), "tanh"),
        (40, "simba", (8, 8), "tanh"),
        (1, "simba", (), "relu"),
    ],
)
def test_head_hidden_layers_match_reference(kind, size, blocks, hidden, activation):
    """SimBa's blocks use ReLU for any `activation`."""
    spec = NetworkSpec(Torso(PARTS), DeterministicHead(2, hidden, activation, blocks))
    obs, _ = inputs(size, PARTS)
    found = call(kind, build(kind, spec, perturbed(spec)), obs)
    assert (found.shape, found.dtype) == ((size, 2), np.float32)
    close(
        found,
        np.tanh(
            reference_stack(perturbed(spec), "layers", encode(PARTS, obs), blocks if hidden else "mlp", activation)
        ),
    )


CRITIC_STACKS = [("mlp", 2), ("layer_norm", 1), ("simba", 0)]


@pytest.mark.parametrize("kind", ["torch", "torch, batched", "jax"])
@pytest.mark.parametrize(("blocks", "joins"), CRITIC_STACKS)
def test_critic_ensemble_with_joined_action_matches_reference(kind, blocks, joins, monkeypatch):
    """PyTorch computes all members in one product on a GPU, and one by one on a CPU."""
    spec = NetworkSpec(Torso(VECTOR), CriticHead(2, (8, 8), "relu", blocks, joins), members=3)
    values, (obs, action) = perturbed(spec), inputs(40)
    if kind == "torch, batched":
        kind = "torch"
        monkeypatch.setattr("duetto.networks.torch_layers.split_members", lambda values: None)
    found = call(kind, build(kind, spec, values), obs, action)
    assert found.shape == (3, 40)
    for member in range(3):
        own = {name: value[member] for name, value in values.items()}
        close(found[member], reference_stack(own, "layers", obs, blocks, joined=action, joins=joins)[:, 0])
    close(call(kind, build(kind, spec, values), obs, action, method="q1"), found[0])


@pytest.mark.parametrize("kind", FRAMEWORKS)
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("blocks", ["layer_norm", "simba"])
def test_torso_hidden_layers_match_reference(kind, shared, blocks):
    """The two heads share one torso or have separate torsos."""
    torso, heads = (
        Torso(VECTOR, hidden=(8, 8), activation="tanh", blocks=blocks),
        (PolicyHead(ACTION), StateValueHead()),
    )
    spec = NetworkSpec(torso, heads, shared=shared, initializer=Initializer("orthogonal"))
    values, (obs, _) = perturbed(spec), inputs(5)
    policy, value = call(kind, build(kind, spec, values), obs)
    expected = reference_agent(spec, values, obs, blocks)
    close(policy.mean, expected[0])
    close(value, expected[1])


# ------------------------------------------------------------------------------------------------ heads
@pytest.mark.parametrize("kind", FRAMEWORKS)
def test_squashed_gaussian_head_clips_log_std(kind):
    """The outputs are means, then log std clipped to [-20, 2]."""
    spec = NetworkSpec(Torso(VECTOR), SquashedGaussianHead(2, (8,)), initializer=Initializer("normal", 9.0))
    obs, _ = inputs(40)
    numbers = reference_stack(initial(spec), "layers", obs)
    assert numbers[:, 2:].min() < -20
    assert numbers[:, 2:].max() > 2
    found = call(kind, build(kind, spec), obs)
    np.testing.assert_allclose(found.mean, numbers[:, :2], rtol=1e-4, atol=1e-2)
    np.testing.assert_allclose(found.log_std, np.clip(numbers[:, 2:], -20, 2), rtol=1e-4, atol=1e-2)


# ------------------------------------------------------------------------------------------------ parameters
def test_norm_parameter_names_and_initial_values():
    """Norms start with scale 1 and shift 0. They do not change the other layers' initial values."""
    values = initial(NetworkSpec(Torso(VECTOR), CriticHead(2, (8, 8), blocks="simba"), members=2))
    rows = [(8, 7), (32, 8), (8, 32), (32, 8), (8, 32), (1, 8)]
    shapes = {f"layers.{i}.weight": (2, *shape) for i, shape in enumerate(rows)}
    shapes |= {f"layers_norms.{i}.weight": (2, 8) for i in range(3)}
    assert {name: value.shape for name, value in values.items() if "weight" in name} == shapes
    plain, normed = (
        initial(NetworkSpec(Torso(VECTOR), DeterministicHead(2, (8, 6), blocks=blocks)))
        for blocks in ("mlp", "layer_norm")
    )
    for name, value in plain.items():
        np.testing.assert_array_equal(value, normed[name])
    assert {name: normed[name].shape for name in normed.keys() - plain.keys()} == {
        f"layers_norms.{i}.{kind}": (width,) for i, width in enumerate((8, 6)) for kind in ("weight", "bias")
    }
    for name, value in (normed | values).items():
        if "norms" in name:
            np.testing.assert_array_equal(value, np.full(value.shape, float(name.endswith("weight")), np.float32))


# ------------------------------------------------------------------------------------------------ errors
def test_simba_rejects_mixed_sizes_and_late_action():
    with pytest.raises(UsageError) as refusal:
        list(map(initial, PPO(network="simba", hidden=(16, 12)).networks(VECTOR, ACTION).values()))
    assert str(refusal.value) == (
        "With network simba all hidden layers have one size, not (16, 12). Give one size, once for each block, such as "
        "256 256."
    )
    with pytest.raises(UsageError, match=r"^critic_action_layer is 1; with network simba it must be 0"):
        SAC(network="simba", hidden=(16, 16), critic_action_layer=1).networks(VECTOR, ACTION)


def test_heads_with_same_stack_name_are_rejected():
    """Parameters are named after their stack."""
    with pytest.raises(ValueError, match=r"^Two stacks of these heads share a name: layers, layers"):
        NetworkSpec(Torso(VECTOR), (DeterministicHead(2, (8,)), SquashedGaussianHead(2, (8,))))


def arrays_of(stack: Stack, make: Any = np.asarray) -> dict[str, Any]:
    """Return ones for weights and scales, zeros for shifts."""
    found = {f"layers.{i}.weight": np.ones((rows, inputs)) for i, (inputs, rows) in enumerate(stack.layers)}
    found |= {f"layers_norms.{i}.weight": np.ones(width) for i, width in enumerate(stack.norms)}
    plain = set(range(len(stack.norms))) - {stack.root_mean_square}
    found |= {f"layers_norms.{i}.bias": np.zeros(stack.norms[i]) for i in plain}
    return {name: make(value) for name, value in found.items()}


def test_weight_row_projection_by_hand(array: Any):
    """(3, 4) → (.6, .8); then (.5, .8) of length .9434 → (.5300, .8480)."""
    stack = Stack("layers", 2, (), 2, blocks="xqc")
    values = arrays_of(stack, array) | {"layers.0.weight": array([[3, 4], [0.5, 0.8]])}
    found = projected([stack], values)
    assert found.keys() == {"layers.0.weight"}  # norms are not projected
    np.testing.assert_allclose(np.asarray(found["layers.0.weight"]), [[0.6, 0.8], [0.53, 0.848]], atol=1e-4)


def test_norm_projection_scales_weight_and_bias_together(array: Any):
    """γ = (2, 1), β = (0, 2): √2 / √9 = .4714; g = (3, 4): √2 / 5."""
    stack = Stack("layers", 2, (2,), 1, blocks="flash")
    given = {"layers_norms.0.weight": [2, 1], "layers_norms.0.bias": [0, 2], "layers_norms.3.weight": [3, 4]}
    found = projected([stack], arrays_of(stack, array) | {name: array(value) for name, value in given.items()})
    for name, expected in (
        ("layers_norms.0.weight", [0.9428, 0.4714]),
        ("layers_norms.0.bias", [0, 0.9428]),
        ("layers_norms.3.weight", [0.8485, 1.1314]),
    ):
        np.testing.assert_allclose(np.asarray(found[name]), expected, atol=1e-4)
