"""Hidden layers with layer normalisation and SimBa's residual blocks: what is built, against their definition."""

import numpy as np
import pytest
from learning_cases import ACTION, PARTS, VECTOR, observations

from duetto.algorithms import PPO, SAC, TD3
from duetto.errors import UsageError
from duetto.networks import numpy as host
from duetto.networks.heads import (
    ActionValueHead,
    CriticHead,
    DeterministicHead,
    PolicyHead,
    SquashedGaussianHead,
    StateValueHead,
)
from duetto.networks.initializers import initial_parameters
from duetto.networks.preprocessing import encode
from duetto.networks.specs import Initializer, NetworkSpec, Torso

EVERYWHERE = ["torch", "jax", "numpy"]
ACTIVATIONS = {"relu": lambda x: np.maximum(x, 0), "tanh": np.tanh}


# ------------------------------------------------------------------------------------------------ the definition
def defined(values, name, x, blocks, activation="relu", joined=None, joins=0):
    """A stack in float64: x (B, in) to (B, out), a last layer without activation included where there is one."""
    values = {key: value.astype(np.float64) for key, value in values.items()}

    def linear(i, x):
        return x @ values[f"{name}.{i}.weight"].T + values[f"{name}.{i}.bias"]

    def norm(i, x):
        centred = x - x.mean(axis=-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)
        return scaled * values[f"{name}_norms.{i}.weight"] + values[f"{name}_norms.{i}.bias"]

    layers, norms = (sum(f"{kind}.{i}.weight" in values for i in range(9)) for kind in (name, f"{name}_norms"))
    if blocks == "simba":
        x = linear(0, x if joined is None else np.concatenate([x, joined], axis=1))
        for block in range(norms - 1):
            x = x + linear(2 + 2 * block, np.maximum(linear(1 + 2 * block, norm(block, x)), 0))
        x = norm(norms - 1, x)
        return linear(layers - 1, x) if layers == 2 * norms else x
    for i in range(layers):
        x = linear(i, x if joined is None or i != joins else np.concatenate([x, joined], axis=1))
        if i < norms:
            x = ACTIVATIONS[activation](norm(i, x))
    return x


def moved(spec, seed=0):
    """First parameters, and norms that are not those at the start."""
    random = np.random.default_rng(seed)
    values = initial_parameters(spec, random)
    for name, value in values.items():
        if "norms" in name:
            value += random.normal(0, 0.5, value.shape).astype(np.float32)
    return values


def call(kind, spec, values, *inputs, method="__call__"):
    """The network of one framework, NumPy to NumPy."""
    if kind == "numpy":
        return host.build(spec, values)(*inputs)
    if kind == "torch":
        import torch

        from duetto.networks.torch import build

        net = build(spec, np.random.default_rng(0))
        assert list(net.values) == list(values)
        with torch.no_grad():
            for name, value in values.items():
                net.values[name].copy_(torch.from_numpy(value))
            return arrays(getattr(net, method)(*(each(torch.from_numpy, part) for part in inputs)))
    import jax.numpy as jnp

    from duetto.networks.jax import build

    net = build(spec, np.random.default_rng(0))
    assert net.names == list(values)
    net = net.with_arrays([jnp.asarray(value) for value in values.values()])
    return arrays(getattr(net, method)(*(each(jnp.asarray, part) for part in inputs)))


def each(function, tree):
    return {name: function(part) for name, part in tree.items()} if isinstance(tree, dict) else function(tree)


def arrays(tree):
    return (
        type(tree)(*map(arrays, tree))
        if hasattr(tree, "_fields")
        else (tuple(map(arrays, tree)) if isinstance(tree, tuple) else np.asarray(tree))
    )


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def inputs(size, observation=VECTOR):
    random = np.random.default_rng(1)
    return observations(observation, size, random), random.uniform(-1, 1, (size, 2)).astype(np.float32)


# ------------------------------------------------------------------------------------------------ stacks
@pytest.mark.parametrize("kind", EVERYWHERE)
@pytest.mark.parametrize(
    ("blocks", "hidden", "activation"),
    [("layer_norm", (16, 12), "tanh"), ("simba", (8, 8), "relu"), ("simba", (8,), "tanh"), ("simba", (), "relu")],
)
def test_a_heads_hidden_layers(kind, blocks, hidden, activation):
    """40 rows, which on AMD take oneDNN's products. SimBa's blocks have ReLU inside, whatever the activation."""
    spec = NetworkSpec(Torso(PARTS), DeterministicHead(2, hidden, activation, blocks))
    obs, _ = inputs(40, PARTS)
    found = call(kind, spec, moved(spec), obs)
    assert found.dtype == np.float32
    blocks = blocks if hidden else "mlp"
    close(found, np.tanh(defined(moved(spec), "layers", encode(PARTS, obs), blocks, activation)))


@pytest.mark.parametrize("kind", ["torch", "jax"])
@pytest.mark.parametrize(("blocks", "joins"), [("layer_norm", 0), ("layer_norm", 1), ("simba", 0)])
def test_members_and_the_action_that_joins(kind, blocks, joins):
    spec = NetworkSpec(Torso(VECTOR), CriticHead(2, (8, 8), "relu", blocks, joins), members=3)
    values, (obs, action) = moved(spec), inputs(5)
    found = call(kind, spec, values, obs, action)
    assert found.shape == (3, 5)
    for member in range(3):
        own = {name: value[member] for name, value in values.items()}
        close(found[member], defined(own, "layers", obs, blocks, joined=action, joins=joins)[:, 0])
    close(call(kind, spec, values, obs, action, method="q1"), found[0])


def test_pytorchs_batched_members_are_the_same(monkeypatch):
    """On a GPU all members are one product; on a CPU they run one after the other."""
    from duetto.networks import torch_layers

    for blocks in ("layer_norm", "simba"):
        spec = NetworkSpec(Torso(VECTOR), CriticHead(2, (8, 8), "relu", blocks), members=3)
        with monkeypatch.context() as patch:
            one_by_one = call("torch", spec, moved(spec), *inputs(5))
            patch.setattr(torch_layers, "split_members", lambda values: None)
            close(call("torch", spec, moved(spec), *inputs(5)), one_by_one)


@pytest.mark.parametrize("kind", EVERYWHERE)
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("blocks", ["layer_norm", "simba"])
def test_a_torsos_hidden_layers(kind, shared, blocks):
    """And two heads: on one torso, or on one each."""
    torso = Torso(VECTOR, hidden=(8, 8), activation="tanh", blocks=blocks)
    spec = NetworkSpec(
        torso, (PolicyHead(ACTION), StateValueHead()), shared=shared, initializer=Initializer("orthogonal")
    )
    values, (obs, _) = moved(spec), inputs(5)
    policy, value = call(kind, spec, values, obs)
    names = ("torso", "torso") if shared else ("policy_torso", "value_torso")
    features = [defined(values, f"{name}.layers", obs, blocks, "tanh") for name in names]
    heads = [
        x @ values[f"{name}_head.weight"].T.astype(np.float64) + values[f"{name}_head.bias"]
        for x, name in zip(features, ("policy", "value"), strict=True)
    ]
    close(policy.mean, heads[0])
    close(value, heads[1][:, 0])


@pytest.mark.parametrize("kind", ["torch", "jax"])
@pytest.mark.parametrize("blocks", ["layer_norm", "simba"])
def test_a_torso_and_a_head_of_their_own(kind, blocks):
    spec = NetworkSpec(
        Torso(VECTOR, hidden=(8, 8), blocks=blocks), ActionValueHead(3, (6,), dueling=True, blocks=blocks)
    )
    values, (obs, _) = moved(spec), inputs(5)
    features = defined(values, "torso.layers", obs, blocks)
    value, advantage = (defined(values, name, features, blocks) for name in ("value", "advantage"))
    close(call(kind, spec, values, obs), value + advantage - advantage.mean(axis=1, keepdims=True))


# ------------------------------------------------------------------------------------------------ heads
@pytest.mark.parametrize("kind", EVERYWHERE)
def test_a_squashed_gaussians_numbers(kind):
    """Means, then logarithms of the std between -20 and 2."""
    spec = NetworkSpec(Torso(VECTOR), SquashedGaussianHead(2, (8,)), initializer=Initializer("normal", 9.0))
    values, (obs, _) = initial_parameters(spec, np.random.default_rng(0)), inputs(40)
    hidden = np.maximum(obs @ values["layers.0.weight"].T.astype(np.float64) + values["layers.0.bias"], 0)
    numbers = hidden @ values["layers.1.weight"].T + values["layers.1.bias"]
    assert numbers[:, 2:].min() < -20
    assert numbers[:, 2:].max() > 2
    found = call(kind, spec, values, obs)
    np.testing.assert_allclose(found.mean, numbers[:, :2], rtol=1e-4, atol=1e-2)
    np.testing.assert_allclose(found.log_std, np.clip(numbers[:, 2:], -20, 2), rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("kind", ["torch", "jax"])
def test_three_heads_give_what_each_gives_alone(kind):
    heads = (PolicyHead(ACTION), StateValueHead(), DeterministicHead(2, (6,)))
    torso = Torso(VECTOR, hidden=(8,))
    values, (obs, _) = initial_parameters(NetworkSpec(torso, heads), np.random.default_rng(0)), inputs(5)
    found = call(kind, NetworkSpec(torso, heads), values, obs)
    assert isinstance(found, tuple)
    for head, output in zip(heads, found, strict=True):
        alone = NetworkSpec(torso, head)
        own = {name: values[name] for name in initial_parameters(alone, np.random.default_rng(0))}
        for ours, theirs in zip(np.atleast_2d(output), np.atleast_2d(call(kind, alone, own, obs)), strict=True):
            np.testing.assert_array_equal(ours, theirs)


# ------------------------------------------------------------------------------------------------ names and numbers
def test_names_shapes_and_first_values():
    """Norms start as nothing but a normalisation; they leave the other layers' numbers where they were."""
    simba = NetworkSpec(Torso(VECTOR), CriticHead(2, (8, 8), blocks="simba"), members=2)
    values = initial_parameters(simba, np.random.default_rng(0))
    assert {name: value.shape for name, value in values.items() if "weight" in name} == {
        "layers.0.weight": (2, 8, 7),
        "layers.1.weight": (2, 32, 8),
        "layers.2.weight": (2, 8, 32),
        "layers.3.weight": (2, 32, 8),
        "layers.4.weight": (2, 8, 32),
        "layers.5.weight": (2, 1, 8),
        "layers_norms.0.weight": (2, 8),
        "layers_norms.1.weight": (2, 8),
        "layers_norms.2.weight": (2, 8),
    }
    plain, normed = (
        initial_parameters(
            NetworkSpec(Torso(VECTOR), DeterministicHead(2, (8, 6), blocks=blocks)), np.random.default_rng(0)
        )
        for blocks in ("mlp", "layer_norm")
    )
    for name, value in plain.items():
        np.testing.assert_array_equal(value, normed[name])
    added = {name: value for name, value in (normed | values).items() if "norms" in name}
    assert {name: normed[name].shape for name in normed.keys() - plain.keys()} == {
        f"layers_norms.{i}.{kind}": (width,) for i, width in enumerate((8, 6)) for kind in ("weight", "bias")
    }
    for name, value in added.items():
        np.testing.assert_array_equal(value, np.full(value.shape, float(name.endswith("weight")), np.float32))


def test_the_last_layers_bound_is_the_last_layers():
    init = Initializer("fan_in", 1.0, final_bound=1e-3)
    spec = NetworkSpec(Torso(VECTOR), DeterministicHead(2, (8, 8), blocks="simba"), initializer=init)
    values = initial_parameters(spec, np.random.default_rng(0))
    assert [np.abs(values[f"layers.{i}.weight"]).max() <= 1e-3 for i in range(6)] == [False] * 5 + [True]


# ------------------------------------------------------------------------------------------------ refusals
@pytest.mark.parametrize("kind", [SAC, TD3, PPO])
def test_residual_blocks_are_of_one_size(kind):
    algorithm = kind(network="simba", hidden=(16, 12))
    with pytest.raises(
        UsageError,
        match=r"^With network simba all hidden layers have one size; hidden is \(16, 12\)\. "
        r"Give one size, once for each block: --hidden 256 256\.$",
    ):
        initial_parameters_of(algorithm)


def test_the_action_joins_residual_blocks_at_the_first_layer():
    with pytest.raises(UsageError, match=r"^critic_action_layer is 1; with network simba it must be 0"):
        initial_parameters_of(SAC(network="simba", hidden=(16, 16), critic_action_layer=1))


def initial_parameters_of(algorithm):
    for spec in algorithm.networks(VECTOR, ACTION).values():
        initial_parameters(spec, np.random.default_rng(0))
