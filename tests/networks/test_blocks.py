"""Stacks of layers: plain, with layer normalization, and SimBa's residual blocks, against their definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from built import ACTIVATIONS, EVERYWHERE, agent_defined, build, call, close, defined, initial, inputs, moved
from learning_cases import ACTION, PARTS, VECTOR

from duetto.algorithms import PPO, SAC, TD3
from duetto.errors import UsageError
from duetto.networks import numpy_layers
from duetto.networks.heads import (
    ActionValueHead,
    CriticHead,
    DeterministicHead,
    PolicyHead,
    SquashedGaussianHead,
    StateValueHead,
)
from duetto.networks.layers import Stack, StackArrays, projected
from duetto.networks.preprocessing import encode
from duetto.networks.specs import Initializer, NetworkSpec, Torso


# 1 row and 40: few take PyTorch's own products, many on AMD processors oneDNN's.
@pytest.mark.parametrize("kind", EVERYWHERE)
@pytest.mark.parametrize("size", [1, 40])
@pytest.mark.parametrize(
    ("blocks", "hidden", "activation"),
    [
        *(("mlp", (16, 12), activation) for activation in ACTIVATIONS),
        ("layer_norm", (16, 12), "tanh"),
        ("simba", (8, 8), "relu"),
        ("simba", (8,), "tanh"),
        ("simba", (), "relu"),
    ],
)
def test_a_heads_hidden_layers(kind, size, blocks, hidden, activation):
    """SimBa's blocks have ReLU inside, whatever the activation."""
    spec = NetworkSpec(Torso(PARTS), DeterministicHead(2, hidden, activation, blocks))
    obs, _ = inputs(size, PARTS)
    found = call(kind, build(kind, spec, moved(spec)), obs)
    assert (found.shape, found.dtype) == ((size, 2), np.float32)
    close(found, np.tanh(defined(moved(spec), "layers", encode(PARTS, obs), blocks if hidden else "mlp", activation)))


MEMBERS = [("mlp", 0), ("mlp", 1), ("mlp", 2), ("layer_norm", 0), ("layer_norm", 1), ("simba", 0)]


@pytest.mark.parametrize("kind", ["torch", "torch, batched", "jax"])
@pytest.mark.parametrize(("blocks", "joins"), MEMBERS)
def test_members_and_the_action_that_joins(kind, blocks, joins, monkeypatch):
    """PyTorch computes all members as one product on a GPU, and one after the other on a CPU."""
    spec = NetworkSpec(Torso(VECTOR), CriticHead(2, (8, 8), "relu", blocks, joins), members=3)
    values, (obs, action) = moved(spec), inputs(40)
    if kind == "torch, batched":
        kind = "torch"
        monkeypatch.setattr("duetto.networks.torch_layers.split_members", lambda values: None)
    found = call(kind, build(kind, spec, values), obs, action)
    assert found.shape == (3, 40)
    for member in range(3):
        own = {name: value[member] for name, value in values.items()}
        close(found[member], defined(own, "layers", obs, blocks, joined=action, joins=joins)[:, 0])
    close(call(kind, build(kind, spec, values), obs, action, method="q1"), found[0])


@pytest.mark.parametrize("kind", EVERYWHERE)
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("blocks", ["layer_norm", "simba"])
def test_a_torsos_hidden_layers(kind, shared, blocks):
    """And two heads: on one torso, or on one each."""
    torso, heads = (
        Torso(VECTOR, hidden=(8, 8), activation="tanh", blocks=blocks),
        (PolicyHead(ACTION), StateValueHead()),
    )
    spec = NetworkSpec(torso, heads, shared=shared, initializer=Initializer("orthogonal"))
    values, (obs, _) = moved(spec), inputs(5)
    policy, value = call(kind, build(kind, spec, values), obs)
    expected = agent_defined(spec, values, obs, blocks)
    close(policy.mean, expected[0])
    close(value, expected[1])


@pytest.mark.parametrize("kind", ["torch", "jax"])
@pytest.mark.parametrize("blocks", ["layer_norm", "simba"])
def test_a_torso_and_a_head_of_their_own(kind, blocks):
    torso = Torso(VECTOR, hidden=(8, 8), blocks=blocks)
    spec = NetworkSpec(torso, ActionValueHead(3, (6,), dueling=True, blocks=blocks))
    values, (obs, _) = moved(spec), inputs(5)
    features = defined(values, "torso.layers", obs, blocks, last=False)
    value, advantage = (defined(values, name, features, blocks) for name in ("value", "advantage"))
    expected = value + advantage - advantage.mean(axis=1, keepdims=True)
    close(call(kind, build(kind, spec, values), obs), expected)


# ------------------------------------------------------------------------------------------------ heads
@pytest.mark.parametrize("kind", EVERYWHERE)
def test_a_squashed_gaussians_numbers(kind):
    """Means, then logarithms of the std between -20 and 2."""
    spec = NetworkSpec(Torso(VECTOR), SquashedGaussianHead(2, (8,)), initializer=Initializer("normal", 9.0))
    obs, _ = inputs(40)
    numbers = defined(initial(spec), "layers", obs)
    assert numbers[:, 2:].min() < -20
    assert numbers[:, 2:].max() > 2
    found = call(kind, build(kind, spec), obs)
    np.testing.assert_allclose(found.mean, numbers[:, :2], rtol=1e-4, atol=1e-2)
    np.testing.assert_allclose(found.log_std, np.clip(numbers[:, 2:], -20, 2), rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("kind", ["torch", "jax"])
def test_three_heads_give_what_each_gives_alone(kind):
    heads, torso = (PolicyHead(ACTION), StateValueHead(), DeterministicHead(2, (6,))), Torso(VECTOR, hidden=(8,))
    values, (obs, _) = initial(NetworkSpec(torso, heads)), inputs(5)
    found = call(kind, build(kind, NetworkSpec(torso, heads), values), obs)
    assert isinstance(found, tuple)
    for head, output in zip(heads, found, strict=True):
        alone = NetworkSpec(torso, head)
        own = call(kind, build(kind, alone, {name: values[name] for name in initial(alone)}), obs)
        for ours, theirs in zip(np.atleast_2d(output), np.atleast_2d(own), strict=True):
            np.testing.assert_array_equal(ours, theirs)


# ------------------------------------------------------------------------------------------------ names and numbers
def test_names_shapes_and_first_values():
    """Norms start as nothing but a normalisation; they leave the other layers' numbers where they were."""
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


# ------------------------------------------------------------------------------------------------ refusals
@pytest.mark.parametrize("kind", [SAC, TD3, PPO])
def test_residual_blocks_are_of_one_size(kind):
    specs = kind(network="simba", hidden=(16, 12)).networks
    with pytest.raises(UsageError) as refusal:
        list(map(initial, specs(VECTOR, ACTION).values()))
    assert str(refusal.value) == (
        "With network simba all hidden layers have one size; hidden is (16, 12). Give one size, once for each block: "
        "--hidden 256 256."
    )


def test_the_action_joins_residual_blocks_at_the_first_layer():
    with pytest.raises(UsageError, match=r"^critic_action_layer is 1; with network simba it must be 0"):
        SAC(network="simba", hidden=(16, 16), critic_action_layer=1).networks(VECTOR, ACTION)


def test_two_heads_do_not_share_a_stacks_name_silently():
    """Neither on one torso nor on one each: the parameters' names are the stacks'."""
    for shared in (True, False):
        with pytest.raises(ValueError, match=r"^Two stacks of these heads share a name: layers, layers"):
            NetworkSpec(Torso(VECTOR), (DeterministicHead(2, (8,)), SquashedGaussianHead(2, (8,))), shared=shared)


def arrays_of(stack: Stack, make: Any = np.asarray) -> dict[str, Any]:
    """Ones in every weight and scale, zeros in every shift."""
    found = {f"layers.{i}.weight": np.ones((rows, inputs)) for i, (inputs, rows) in enumerate(stack.layers)}
    found |= {f"layers_norms.{i}.weight": np.ones(width) for i, width in enumerate(stack.norms)}
    plain = set(range(len(stack.norms))) - {stack.root_mean_square}
    found |= {f"layers_norms.{i}.bias": np.zeros(stack.norms[i]) for i in plain}
    return {name: make(value) for name, value in found.items()}


def test_rows_by_hand(array: Any):
    """(3, 4) → (.6, .8); then (.5, .8) of length .9434 → (.5300, .8480)."""
    stack = Stack("layers", 2, (), 2, blocks="xqc")
    values = arrays_of(stack, array) | {"layers.0.weight": array([[3, 4], [0.5, 0.8]])}
    found = projected([stack], values)
    assert found.keys() == {"layers.0.weight"}  # not the norms'
    np.testing.assert_allclose(np.asarray(found["layers.0.weight"]), [[0.6, 0.8], [0.53, 0.848]], atol=1e-4)


def test_scale_and_shift_share_one_factor(array: Any):
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


def test_members_and_seeds_are_projected_each_alone(array: Any):
    """Leading axes of an ensemble and of seeds."""
    stack = Stack("layers", 2, (3,), 1, blocks="flash")
    random = np.random.default_rng(0)
    each = [{name: random.normal(size=value.shape) for name, value in arrays_of(stack).items()} for _ in range(4)]
    together = {name: array(np.reshape([one[name] for one in each], (2, 2, *each[0][name].shape))) for name in each[0]}
    found = projected([stack], together)
    for number, one in enumerate(each):
        for name, alone in projected([stack], one).items():
            row = np.asarray(found[name])[number // 2, number % 2]
            np.testing.assert_allclose(row, alone, rtol=1e-5)


def test_the_root_mean_square_by_hand(array: Any):
    """(3, 4) / √12.5 = (.8485, 1.1314)."""
    stack = Stack("layers", 2, (2,), 1, blocks="flash")
    layers: Any = numpy_layers
    found = StackArrays(stack, layers, arrays_of(stack, array)).rms_norm(3, array([[3, 4]]))
    np.testing.assert_allclose(np.asarray(found), [[0.8485, 1.1314]], atol=1e-4)


@pytest.mark.parametrize(
    ("stack", "layers", "norms"),
    [
        (
            Stack("l", 3, (4, 4), 7, blocks="flash", joined=2),
            [(5, 4), (4, 16), (16, 4), (4, 16), (16, 4), (4, 7)],
            [5, 16, 4, 16, 4, 4],
        ),
        (Stack("l", 3, (4, 6), 7, blocks="xqc", joined=2), [(5, 4), (4, 6), (6, 7)], [5, 4, 6]),
    ],
)
def test_shapes(stack: Any, layers: list[tuple[int, int]], norms: list[int]):
    assert (stack.layers, stack.norms) == (layers, norms)
    normalized = [i for i in range(len(norms)) if i != stack.root_mean_square]
    assert set(stack.statistics) == {f"l_norms.{i}.{part}" for i in normalized for part in ("mean", "variance")}
