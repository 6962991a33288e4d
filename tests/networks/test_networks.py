"""Custom networks in both frameworks, and oneDNN's linear layer."""

import numpy as np
import pytest
import toy_networks
from learning_cases import VECTOR, box
from network_cases import build, call, inputs

from duetto.errors import UsageError
from duetto.networks.heads import CriticHead, DeterministicHead
from duetto.networks.spaces import Dict
from duetto.networks.specs import CustomNetwork, NetworkSpec, Torso


def actor(custom, observation=VECTOR):
    return NetworkSpec(Torso(observation), DeterministicHead(2), custom=custom)


def critic(custom, observation=VECTOR):
    return NetworkSpec(Torso(observation), CriticHead(2), members=2, custom=custom)


def test_onednn_linear_gradients_match_pytorch():
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


# ------------------------------------------------------------------------------------------------ custom networks
def test_custom_network_receives_its_arguments(backend):
    net = build(backend, actor(toy_networks.actor(2.0), box(3)))
    np.testing.assert_array_equal(call(backend, net, np.array([[1, 2, 3]], np.float32)), [[12, 12]])


def test_custom_network_receives_only_parts_of_its_space(backend):
    """With HER, observations also have `achieved_goal`, which is not in the network's space."""
    goals = Dict((("desired_goal", box(1)), ("observation", box(2))))
    obs = {"achieved_goal": [[9.0]], "desired_goal": [[1.0]], "observation": [[2.0, 3.0]]}
    obs = {name: np.array(part, np.float32) for name, part in obs.items()}
    found = call(backend, build(backend, actor(toy_networks.joining(), goals)), obs)
    np.testing.assert_array_equal(found, [[6.0, 6.0]])
    net, action = build(backend, critic(toy_networks.joining(), goals)), np.array([[1.0, 1.0]], np.float32)
    np.testing.assert_array_equal(call(backend, net, obs, action), [[8.0], [8.0]])
    np.testing.assert_array_equal(call(backend, net, obs, action, method="q1"), [8.0])


def test_custom_critic_ensemble_is_initialized_from_seed(backend):
    """PyTorch's global random state does not change, although modules draw from it."""
    import torch

    before = torch.get_rng_state()
    nets = [build(backend, critic(toy_networks.noisy_critic()), seed=seed) for seed in (0, 0, 1)]
    assert torch.equal(torch.get_rng_state(), before)
    one, again, other = (call(backend, net, *inputs(4)) for net in nets)
    assert one.shape == (2, 4)
    assert not np.allclose(one[0], one[1])
    np.testing.assert_array_equal(call(backend, nets[0], *inputs(4), method="q1"), one[0])
    np.testing.assert_array_equal(one, again)
    assert not np.allclose(one, other)


def test_missing_custom_network_class_is_reported(backend):
    other = {"torch": "jax", "jax": "torch"}[backend]
    with pytest.raises(
        UsageError,
        match=rf"^The network is for {other} only\. Give CustomNetwork\({backend}=\.\.\.\) or set backend=\"{other}\"",
    ):
        build(backend, actor(CustomNetwork(**{other: object})))
