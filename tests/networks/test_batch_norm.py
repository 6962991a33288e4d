"""Batch normalization (also of XQC) and renormalization, by hand and compared with NumPy; running statistics."""

import numpy as np
import pytest
import torch
from learning_cases import VECTOR
from network_cases import build, call, close, initial, inputs, perturbed

from duetto.functional.pytree import tree_map
from duetto.networks import batch_norm, torch_layers
from duetto.networks.heads import CriticHead
from duetto.networks.initializers import parameter_shapes
from duetto.networks.specs import NetworkSpec, Torso

BLOCKS = ["batch_norm", "batch_renorm"]
NORM = {"n.mean": [1.0], "n.variance": [3.999]}  # σ_running = √(3.999 + .001) = 2


def reference_stack(values, x, train, count=0.0):
    """Compute a stack in float64; return outputs and new running statistics. `count` batches came before."""
    values = {key: value.astype(np.float64) for key, value in values.items()}
    after = {}

    def norm(i, x):
        name = f"layers_norms.{i}"
        mean, variance = values[f"{name}.mean"], values[f"{name}.variance"]
        r, d = 1.0, 0.0
        if train:
            running = np.sqrt(variance + 1e-3)
            after[f"{name}.mean"] = 0.99 * mean + 0.01 * x.mean(axis=0)
            after[f"{name}.variance"] = 0.99 * variance + 0.01 * x.var(axis=0)
            if f"{name}.count" in values:
                after[f"{name}.count"] = count + 1
            if f"{name}.count" in values and count >= 100_000:
                r = np.clip(np.sqrt(x.var(axis=0) + 1e-3) / running, 1 / 3, 3)
                d = np.clip((x.mean(axis=0) - mean) / running, -5, 5)
            mean, variance = x.mean(axis=0), x.var(axis=0)
        scaled = (x - mean) / np.sqrt(variance + 1e-3) * r + d
        return scaled * values[f"{name}.weight"] + values[f"{name}.bias"]

    layers = sum(f"layers.{i}.weight" in values for i in range(9))
    if "layers.0.bias" not in values:  # xqc: hidden layers without biases, normalized before ReLU
        x = norm(0, x)
        for i in range(layers - 1):
            x = np.maximum(norm(i + 1, x @ values[f"layers.{i}.weight"].T), 0)
        return x @ values[f"layers.{layers - 1}.weight"].T + values[f"layers.{layers - 1}.bias"], after
    for i in range(layers):
        x = norm(i, x) @ values[f"layers.{i}.weight"].T + values[f"layers.{i}.bias"]
        x = np.maximum(x, 0) if i < layers - 1 else x
    return x, after


# ------------------------------------------------------------------------------------------------ by hand
# σ_running = 2, μ_running = 1, γ = 2, β = .5.  σ = √(variance + .001)
@pytest.mark.parametrize(
    ("mean", "variance", "scale", "shift"),
    [
        (2.0, 8.999, 2 * 1.5, 0.5 + 2 * 0.5),  # r = 3/2, d = (2 - 1) / 2
        (1.0, 63.999, 2 * 3.0, 0.5),  # r = 8/2, at most 3
        (1.0, 0.0, 2 / 3, 0.5),  # r = .0316/2, at least 1/3
        (21.0, 3.999, 2.0, 0.5 + 2 * 5),  # d = 20/2, at most 5
        (-21.0, 3.999, 2.0, 0.5 - 2 * 5),
    ],
)
def test_batch_renormalization_by_hand(array, mean, variance, scale, shift):
    values = {name: array(value) for name, value in NORM.items()} | {"n.count": array(100_000.0)}
    normalized = np.array([[0.0], [1.0]])  # x̂
    given = array([mean]), array([variance]), array([2.0]), array([0.5])
    y = array(2.0 * normalized + 0.5)
    found = batch_norm.renormalized(y, values, "n", *given)
    np.testing.assert_allclose(np.asarray(found), scale * normalized + shift, rtol=1e-6)
    early = batch_norm.renormalized(y, values | {"n.count": array(99_999.0)}, "n", *given)
    np.testing.assert_array_equal(np.asarray(early), np.asarray(y))


# ------------------------------------------------------------------------------------------------ stacks
@pytest.mark.parametrize("count", [99_999.0, 100_000.0])
@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("blocks", [*BLOCKS, "xqc"])
def test_batch_norm_critic_ensemble_matches_reference(backend, blocks, train, count):
    """Each member normalizes the concatenated observation and action with its own statistics."""
    spec = NetworkSpec(Torso(VECTOR), CriticHead(2, (8, 6), blocks=blocks), members=2)
    values, (obs, action) = perturbed(spec, count), inputs(40)
    net = build(backend, spec, values)
    found = call(backend, net, obs, action, train=train)
    seen = tree_map(np.asarray, net.updated_stats)
    assert train or not seen
    for member in range(2):
        own = {name: value[member] for name, value in values.items()}
        outputs, after = reference_stack(own, np.concatenate([obs, action], axis=1), train, count)
        close(found[member], outputs[:, 0])
        assert after.keys() == seen.keys()
        for name, value in after.items():
            close(seen[name][member], value)


def test_batched_ensemble_equals_sequential_ensemble_in_pytorch(monkeypatch):
    """On a GPU, PyTorch computes all members with one matrix product per layer."""
    spec = NetworkSpec(Torso(VECTOR), CriticHead(2, (8,), blocks="batch_renorm"), members=3)
    obs, action = (torch.from_numpy(part) for part in inputs(6))
    found = []
    for batched in (False, True):
        if batched:
            monkeypatch.setattr(torch_layers, "split_members", lambda values: None)
        net = build("torch", spec, perturbed(spec, 100_000.0))
        q = net(obs, action, train=True)
        learned = [value for name, value in net.values.items() if name in net.learned]
        found.append([q, *net.updated_stats.values(), *torch.autograd.grad((q**3).sum(), learned)])
    for one, other in zip(*found, strict=True):
        close(other.detach(), one.detach())


# ------------------------------------------------------------------------------------------------ gradients
def test_batch_renorm_gradients_match_across_frameworks():
    """r and d are constants to the gradient."""
    import jax
    import jax.numpy as jnp

    from duetto.networks import jax as framework

    spec = NetworkSpec(Torso(VECTOR), CriticHead(2, (8,), blocks="batch_renorm"), members=2)
    values, (obs, action) = perturbed(spec, 100_000.0), inputs(6)
    ours = build("torch", spec, values)
    q = ours(torch.from_numpy(obs), torch.from_numpy(action), train=True)
    gradients = torch.autograd.grad((q**2).sum(), list(ours.learned.values()))
    net, given = framework.build(spec, np.random.default_rng(0)), [jnp.asarray(value) for value in values.values()]

    def loss(learned):
        return (net.with_arrays(learned + given[net.learned :])(obs, action, train=True) ** 2).sum()

    for one, other in zip(gradients, jax.grad(loss)(given[: net.learned]), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)


# ------------------------------------------------------------------------------------------------ parameters
def test_batch_renorm_parameter_names_and_initial_values():
    """Statistics come last (mean 0, variance 1, count 0) and have no gradient."""
    spec = NetworkSpec(Torso(VECTOR), CriticHead(2, (8, 6), blocks="batch_renorm"), members=2)
    values, kinds = initial(spec), {"weight": 1.0, "bias": 0.0, "mean": 0.0, "variance": 1.0}
    for i, width in enumerate((7, 8, 6)):
        for kind, first in kinds.items():
            np.testing.assert_array_equal(values[f"layers_norms.{i}.{kind}"], np.full((2, width), first, np.float32))
        np.testing.assert_array_equal(values[f"layers_norms.{i}.count"], np.zeros(2, np.float32))
    assert parameter_shapes(spec) == {name: value.shape for name, value in values.items()}
    net = build("torch", spec, values)
    assert list(net.learned) == list(values)[:-9]
    assert list(values)[-9:] == list(spec.statistics)


def test_running_statistics_stay_float32_in_bfloat16(backend):
    spec = NetworkSpec(Torso(VECTOR), CriticHead(2, (8,), blocks="batch_renorm"), members=2)
    values, (obs, action) = perturbed(spec, 70_001.0), inputs(40)
    net = build(backend, spec, values, precision=None if backend == "torch" else "bfloat16")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        call(backend, net, obs, action, train=True)
    after = {name: np.asarray(value) for name, value in net.updated_stats.items()}
    assert {value.dtype for value in after.values()} == {np.dtype(np.float32)}
    np.testing.assert_array_equal(after["layers_norms.1.count"], [70_002, 70_002])  # bfloat16 cannot represent 70,002
    both = np.concatenate([obs, action], axis=1)
    _, expected = reference_stack({name: value[0] for name, value in values.items()}, both, True)
    name = "layers_norms.1.variance"
    np.testing.assert_allclose(after[name][0], expected[name], rtol=1e-3)


def test_statistics_of_bfloat16_rows_are_float32_under_vmap():
    rows = torch.from_numpy(np.random.default_rng(0).normal(1, 2, (2, 64, 3))).bfloat16()
    scale, shift = torch.ones(2, 3), torch.zeros(2, 3)
    with torch_layers.pytorch_products():
        y, *found = torch.vmap(torch_layers.batch_norm, in_dims=(0, 0, 0, None))(rows, scale, shift, 1e-3)
    assert y.dtype == torch.bfloat16
    for one, other in zip(found, (rows.double().mean(1), rows.double().var(1, correction=0)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
