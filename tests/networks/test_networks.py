"""What both frameworks build from a spec, against the definition in NumPy."""

import numpy as np
import pytest
import toy_networks
from learning_cases import PARTS, VECTOR, box, observations, perceptron

from duetto.errors import UsageError
from duetto.networks.heads import CriticHead, DeterministicHead
from duetto.networks.initializers import initial_parameters
from duetto.networks.preprocessing import encode
from duetto.networks.spaces import Dict
from duetto.networks.specs import CustomNetwork, NetworkSpec, Torso

ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
}


class Built:
    """A network of either framework, called with NumPy arrays."""

    def __init__(self, backend, spec, seed=0):
        if backend == "torch":
            import torch

            from duetto.networks.torch import build

            self.array = lambda value: torch.from_numpy(np.ascontiguousarray(value))
            self.numpy = lambda value: value.detach().numpy()
        else:
            import jax.numpy as jnp

            from duetto.networks.jax import build

            self.array, self.numpy = jnp.asarray, np.asarray
        self.net = build(spec, np.random.default_rng(seed))
        if backend == "jax":
            self.net = self.net.with_arrays(self.net.arrays)

    def __call__(self, *inputs, method="__call__"):
        return self.numpy(getattr(self.net, method)(*(self._tree(value) for value in inputs)))

    def _tree(self, value):
        if isinstance(value, dict):
            return {name: self.array(part) for name, part in value.items()}
        return self.array(value)


def actor(observation=VECTOR, custom=None):
    return NetworkSpec(Torso(observation), DeterministicHead(2, (16, 12)), custom=custom)


def critic(members=2, custom=None, **options):
    return NetworkSpec(Torso(VECTOR), CriticHead(2, **({"hidden": (16, 12)} | options)), members=members, custom=custom)


def inputs(size, observation=VECTOR):
    random = np.random.default_rng(1)
    return observations(observation, size, random), random.uniform(-1, 1, (size, 2)).astype(np.float32)


# 1 row and 40: few take PyTorch's own products, many on AMD processors oneDNN's.
@pytest.mark.parametrize("size", [1, 40])
@pytest.mark.parametrize("observation", [VECTOR, PARTS], ids=["vector", "dict"])
def test_an_actor_is_layers_and_tanh(backend, size, observation):
    spec = actor(observation=observation)
    values = initial_parameters(spec, np.random.default_rng(0))
    obs, _ = inputs(size, observation)
    found = Built(backend, spec)(obs)
    assert (found.shape, found.dtype) == ((size, 2), np.float32)
    np.testing.assert_allclose(found, np.tanh(perceptron(values, encode(observation, obs))), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [1, 40])
def test_a_critic_is_one_such_network_for_each_member(backend, size):
    values = initial_parameters(critic(), np.random.default_rng(0))
    obs, action = inputs(size)
    built, joined = Built(backend, critic()), np.concatenate([obs, action], axis=1)
    found = built(obs, action)
    assert (found.shape, found.dtype) == ((2, size), np.float32)
    for member in (0, 1):
        np.testing.assert_allclose(found[member], perceptron(values, joined, member)[:, 0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(built(obs, action, method="q1"), found[0], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("layer", [1, 2])
def test_the_action_may_join_later(backend, layer):
    spec = critic(joins=layer)
    values = initial_parameters(spec, np.random.default_rng(0))
    obs, action = inputs(4)
    found = Built(backend, spec)(obs, action)
    for member in (0, 1):
        x = obs
        for i in range(3):
            x = np.concatenate([x, action], axis=1) if i == layer else x
            x = x @ values[f"layers.{i}.weight"][member].T + values[f"layers.{i}.bias"][member]
            x = np.maximum(x, 0) if i < 2 else x
        np.testing.assert_allclose(found[member], x[:, 0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations(backend, activation):
    spec = critic(hidden=(16,), activation=activation, members=1)
    values = {name: value[0] for name, value in initial_parameters(spec, np.random.default_rng(0)).items()}
    obs, action = inputs(4)
    hidden = np.concatenate([obs, action], axis=1) @ values["layers.0.weight"].T + values["layers.0.bias"]
    expected = ACTIVATIONS[activation](hidden) @ values["layers.1.weight"].T + values["layers.1.bias"]
    np.testing.assert_allclose(Built(backend, spec)(obs, action)[0], expected[:, 0], rtol=1e-5, atol=1e-6)


def test_pytorchs_batched_product_for_gpus_is_the_same(monkeypatch):
    """On a GPU all members are one product; on a CPU they run one after the other."""
    from duetto.networks import torch_layers

    built = Built("torch", critic(joins=1))
    one_by_one = built(*inputs(40))
    monkeypatch.setattr(torch_layers, "split_members", lambda values: None)
    np.testing.assert_allclose(built(*inputs(40)), one_by_one, rtol=1e-5, atol=1e-6)


def test_onednns_product_has_pytorchs_gradients():
    import torch

    from duetto.networks import torch_layers as networks

    if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        pytest.skip("this PyTorch has no oneDNN")
    random = torch.Generator().manual_seed(0)
    x, weight, bias = (torch.randn(shape, generator=random) for shape in ((40, 7), (5, 7), (5,)))
    for wanted in ((x, weight, bias), (weight, bias), (x,)):
        results = []
        for function in (networks.OneDnnLinear.apply, torch.nn.functional.linear):
            leaves = [value.detach().requires_grad_(any(value is one for one in wanted)) for value in (x, weight, bias)]
            y = function(*leaves)
            results.append([y, *torch.autograd.grad((y**2).mean(), [leaf for leaf in leaves if leaf.requires_grad])])
        for ours, theirs in zip(*results, strict=True):
            np.testing.assert_allclose(ours.detach(), theirs.detach(), rtol=1e-4, atol=1e-6)


# ------------------------------------------------------------------------------------------------ own networks
def test_own_networks_are_made_with_their_arguments(backend):
    spec = actor(observation=box(3), custom=toy_networks.actor(2.0))
    np.testing.assert_array_equal(Built(backend, spec)(np.array([[1, 2, 3]], np.float32)), [[12, 12]])


def test_own_networks_get_the_parts_that_they_were_made_for(backend):
    """With hindsight an observation has what was achieved as well, of which the space that they got says nothing."""
    goals = Dict((("desired_goal", box(1)), ("observation", box(2))))
    obs = {"achieved_goal": [[9.0]], "desired_goal": [[1.0]], "observation": [[2.0, 3.0]]}
    obs = {name: np.array(part, np.float32) for name, part in obs.items()}
    found = Built(backend, NetworkSpec(Torso(goals), DeterministicHead(2), custom=toy_networks.joining()))(obs)
    np.testing.assert_array_equal(found, [[6.0, 6.0]])
    values = Built(backend, NetworkSpec(Torso(goals), CriticHead(2), members=2, custom=toy_networks.joining()))
    action = np.array([[1.0, 1.0]], np.float32)
    np.testing.assert_array_equal(values(obs, action), [[8.0], [8.0]])
    np.testing.assert_array_equal(values(obs, action, method="q1"), [8.0])


def test_own_critics_make_an_ensemble(backend):
    spec = critic(custom=toy_networks.noisy_critic())
    built = Built(backend, spec)
    obs, action = inputs(4)
    found = built(obs, action)
    assert found.shape == (2, 4)
    assert not np.allclose(found[0], found[1])
    np.testing.assert_array_equal(built(obs, action, method="q1"), found[0])


def test_own_networks_start_from_the_runs_seed(backend):
    spec = critic(custom=toy_networks.noisy_critic())
    one, again, other = (Built(backend, spec, seed)(*inputs(4)) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert not np.allclose(one, other)


def test_pytorchs_global_generator_is_left_as_it_was():
    import torch

    before = torch.get_rng_state()
    Built("torch", critic(custom=toy_networks.noisy_critic()))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_missing_framework_is_said(backend):
    other = {"torch": "jax", "jax": "torch"}[backend]
    lacking = CustomNetwork(**{other: object})
    with pytest.raises(
        UsageError,
        match=rf"^The network is for {other} only\. Give CustomNetwork\({backend}=\.\.\.\) or set backend=\"{other}\"",
    ):
        Built(backend, actor(custom=lacking))
