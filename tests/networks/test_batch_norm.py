"""Batch normalisation and renormalisation: by hand, against their definition, and what becomes of the statistics."""

import numpy as np
import pytest
import torch
from learning_cases import ACTION, VECTOR, box
from test_blocks import arrays, close, each, inputs

from duetto.networks import batch_norm, torch_layers
from duetto.networks.heads import CriticHead, DeterministicHead, PolicyHead, SquashedGaussianHead, StateValueHead
from duetto.networks.initializers import initial_parameters, parameter_shapes
from duetto.networks.specs import NetworkSpec, Torso

KINDS = ["batch_norm", "batch_renorm"]
NORM = {"n.mean": [1.0], "n.variance": [3.999]}  # σ_running = √(3.999 + .001) = 2


def built(kind, spec, values):
    """The network of a framework with these arrays."""
    if kind == "torch":
        from duetto.networks.torch import build

        net = build(spec, np.random.default_rng(0))
        assert list(net.values) == list(values)
        with torch.no_grad():
            for name, value in values.items():
                net.values[name].copy_(torch.from_numpy(np.asarray(value)))
        return net
    import jax.numpy as jnp

    from duetto.networks.jax import build

    return build(spec, np.random.default_rng(0)).with_arrays([jnp.asarray(value) for value in values.values()])


def call(kind, net, *given, **options):
    """NumPy to NumPy."""
    if kind == "torch":
        with torch.no_grad():
            return arrays(net(*(each(torch.from_numpy, part) for part in given), **options))
    import jax.numpy as jnp

    return arrays(net(*(each(jnp.asarray, part) for part in given), **options))


def away(spec, count=0.0, seed=0):
    """First arrays, with norms and statistics that are not those at the start."""
    random, values = np.random.default_rng(seed), initial_parameters(spec, np.random.default_rng(seed))
    for name, value in values.items():
        if "norms" in name and not name.endswith("count"):
            value += np.abs(random.normal(0, 0.5, value.shape)).astype(np.float32)
        elif name.endswith("count"):
            value += np.float32(count)
    return values


def defined(values, x, train, count=0.0):
    """A stack in float64, and its running statistics after the batch; the count of batches is that before it."""
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
    for i in range(layers):
        x = norm(i, x) @ values[f"layers.{i}.weight"].T + values[f"layers.{i}.bias"]
        x = np.maximum(x, 0) if i < layers - 1 else x
    return x, after


# ------------------------------------------------------------------------------------------------ by hand
def test_the_running_statistics_keep_99_parts_of_100(array):
    """Mean 2 and variance 4 of the rows 0 and 4:  .99·0 + .01·2 = .02,  .99·1 + .01·4 = 1.03; one batch more."""
    values = {"n.mean": array([0.0]), "n.variance": array([1.0]), "n.count": array(7.0)}
    after = batch_norm.updated_stats(values, "n", array([2.0]), array([4.0]))
    assert {name: np.asarray(value).tolist() for name, value in after.items()} == {
        "n.mean": pytest.approx([0.02]),
        "n.variance": pytest.approx([1.03]),
        "n.count": 8.0,
    }
    assert "n.count" not in batch_norm.updated_stats(
        {key: values[key] for key in ("n.mean", "n.variance")}, "n", *[values["n.mean"]] * 2
    )


def test_rows_by_their_own_statistics(backend):
    """Rows 0 and 4: mean 2, variance 4, so x̂ = ±2 / √4.001 = ±.999875; times γ = 3, plus β = 1: -1.999625, 3.999625.

    By running mean 1 and std 2 they are -.5 and 1.5: -.5 and 5.5 behind γ and β.
    """
    layers, make = framework(backend)
    x, scale, shift = make([[0.0], [4.0]]), make([3.0]), make([1.0])
    mean, variance = batch_norm.moments(x, (0,))
    assert (float(mean[0]), float(variance[0])) == (2.0, 4.0)
    found = layers.batch_norm(x, scale, shift, batch_norm.EPSILON)
    np.testing.assert_allclose(np.asarray(found)[:, 0], [-1.999625, 3.999625], rtol=1e-6)
    settled = batch_norm.eval_norm(x, {name: make(value) for name, value in NORM.items()}, "n", scale, shift)
    np.testing.assert_allclose(np.asarray(settled)[:, 0], [-0.5, 5.5], rtol=1e-6)


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
def test_renormalisation_by_hand(array, mean, variance, scale, shift):
    values = {name: array(value) for name, value in NORM.items()} | {"n.count": array(100_000.0)}
    given = array([mean]), array([variance]), array([2.0]), array([0.5])
    found = batch_norm.renormalized(values, "n", *given)
    np.testing.assert_allclose([np.asarray(part)[0] for part in found], [scale, shift], rtol=1e-6)
    early = batch_norm.renormalized(values | {"n.count": array(99_999.0)}, "n", *given)
    assert [float(part[0]) for part in early] == [2.0, 0.5]


def framework(kind):
    """Its layers, and what makes an array."""
    if kind == "torch":
        return torch_layers, torch.tensor
    import jax.numpy as jnp

    from duetto.networks import jax_layers

    return jax_layers, jnp.asarray


# ------------------------------------------------------------------------------------------------ stacks
@pytest.mark.parametrize("count", [99_999.0, 100_000.0])
@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("blocks", KINDS)
def test_members_and_the_action(backend, blocks, train, count):
    """Observation and action are normalised side by side, each member by statistics of its own."""
    spec = NetworkSpec(Torso(VECTOR), CriticHead(2, (8, 6), blocks=blocks), members=2)
    values, (obs, action) = away(spec, count), inputs(40)
    net = built(backend, spec, values)
    found = call(backend, net, obs, action, train=train)
    moved = each(np.asarray, net.updated_stats)
    assert train or not moved
    for member in range(2):
        own = {name: value[member] for name, value in values.items()}
        outputs, after = defined(own, np.concatenate([obs, action], axis=1), train, count)
        close(found[member], outputs[:, 0])
        assert after.keys() == moved.keys()
        for name, value in after.items():
            close(moved[name][member], value)


@pytest.mark.parametrize("train", [False, True])
def test_a_policys_layers(backend, train):
    spec = NetworkSpec(Torso(VECTOR), SquashedGaussianHead(2, (8,), blocks="batch_renorm"))
    values, (obs, _) = away(spec), inputs(40)
    net = built(backend, spec, values)
    outputs, after = defined(values, obs, train)
    close(call(backend, net, obs, train=train).mean, outputs[:, :2])
    assert net.updated_stats.keys() == after.keys()


def test_pytorchs_batched_members_are_the_same(monkeypatch):
    """On a GPU all members are one product: outputs, statistics and gradients as one after the other."""
    spec = NetworkSpec(Torso(VECTOR), CriticHead(2, (8,), blocks="batch_renorm"), members=3)
    obs, action = (torch.from_numpy(part) for part in inputs(6))
    found = []
    for batched in (False, True):
        if batched:
            monkeypatch.setattr(torch_layers, "split_members", lambda values: None)
        net = built("torch", spec, away(spec, 100_000.0))
        q = net(obs, action, train=True)
        learned = [value for name, value in net.values.items() if name in net.learned]
        found.append([q, *net.updated_stats.values(), *torch.autograd.grad((q**3).sum(), learned)])
    for one, other in zip(*found, strict=True):
        close(other.detach(), one.detach())


def test_in_evaluation_a_row_does_not_depend_on_its_neighbours(backend):
    spec = NetworkSpec(Torso(VECTOR), DeterministicHead(2, (8,), blocks="batch_norm"))
    net, (obs, _) = built(backend, spec, away(spec)), inputs(40)
    close(call(backend, net, obs[:3]), call(backend, net, obs)[:3])
    assert np.abs(call(backend, net, obs[:3], train=True) - call(backend, net, obs, train=True)[:3]).max() > 1e-3


# ------------------------------------------------------------------------------------------------ gradients
@pytest.mark.parametrize("rows", [3, 40])
def test_pytorchs_own_batch_norm_has_the_gradient_of_the_formula(rows):
    random = np.random.default_rng(0)
    x, scale, shift, weights = (
        torch.tensor(random.normal(1.0, 2.0, shape), dtype=torch.float32, requires_grad=True)
        for shape in ((rows, 5), 5, 5, (rows, 5))
    )
    mean, variance = batch_norm.moments(x, (0,))
    ours = torch_layers.batch_norm(x, scale, shift, batch_norm.EPSILON)
    theirs = (x - mean) / (variance + 1e-3).sqrt() * scale + shift
    close(ours.detach(), theirs.detach())
    for one, other in zip(
        *(torch.autograd.grad((y * weights).sum(), [x, scale, shift]) for y in (ours, theirs)), strict=True
    ):
        close(one, other)


def test_both_frameworks_have_the_same_gradient():
    """Also through r and d, which are numbers to it."""
    import jax
    import jax.numpy as jnp

    from duetto.networks.jax import build

    spec = NetworkSpec(Torso(VECTOR), CriticHead(2, (8,), blocks="batch_renorm"), members=2)
    values, (obs, action) = away(spec, 100_000.0), inputs(6)
    ours = built("torch", spec, values)
    q = ours(torch.from_numpy(obs), torch.from_numpy(action), train=True)
    gradients = torch.autograd.grad((q**2).sum(), list(ours.learned.values()))
    net, given = build(spec, np.random.default_rng(0)), [jnp.asarray(value) for value in values.values()]

    def loss(learned):
        return (net.with_arrays(learned + given[net.learned :])(obs, action, train=True) ** 2).sum()

    for one, other in zip(gradients, jax.grad(loss)(given[: net.learned]), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)


# ------------------------------------------------------------------------------------------------ names and numbers
def test_names_shapes_and_first_values():
    """Statistics come last: mean 0, variance 1, no batch yet. Nothing learns them."""
    spec = NetworkSpec(Torso(VECTOR), CriticHead(2, (8, 6), blocks="batch_renorm"), members=2)
    values = initial_parameters(spec, np.random.default_rng(0))
    kept = {
        f"layers_norms.{i}.{kind}": (2, width)
        for i, width in enumerate((7, 8, 6))
        for kind in ("weight", "bias", "mean", "variance")
    } | {f"layers_norms.{i}.count": (2,) for i in range(3)}
    assert {name: value.shape for name, value in values.items() if "norms" in name} == kept
    assert parameter_shapes(spec) == {name: value.shape for name, value in values.items()}
    assert list(values)[-9:] == list(spec.statistics)
    for name in kept:
        expected = 1.0 if name.endswith(("weight", "variance")) else 0.0
        np.testing.assert_array_equal(values[name], np.full(kept[name], expected, np.float32))
    net = built("torch", spec, values)
    assert list(net.learned) == list(values)[:-9]
    assert {name for name, value in net.values.items() if not value.requires_grad} == set(spec.statistics)
    plain = NetworkSpec(Torso(VECTOR), CriticHead(2, (8, 6), blocks="batch_norm"), members=2)
    assert set(spec.statistics) - set(plain.statistics) == {f"layers_norms.{i}.count" for i in range(3)}


def test_in_bfloat16_statistics_are_float32(backend):
    spec = NetworkSpec(Torso(VECTOR), CriticHead(2, (8,), blocks="batch_renorm"), members=2)
    values, (obs, action) = away(spec, 70_001.0), inputs(40)
    if backend == "torch":
        net = built("torch", spec, values)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            call("torch", net, obs, action, train=True)
    else:
        import jax.numpy as jnp

        from duetto.networks.jax import build

        arrays = [jnp.asarray(value) for value in values.values()]
        net = build(spec, np.random.default_rng(0)).with_arrays(arrays, jnp.bfloat16)
        call("jax", net, obs, action, train=True)
    moved = {name: np.asarray(value) for name, value in net.updated_stats.items()}
    assert {value.dtype for value in moved.values()} == {np.dtype(np.float32)}
    np.testing.assert_array_equal(moved["layers_norms.1.count"], [70_002, 70_002])  # no number of bfloat16
    both = np.concatenate([obs, action], axis=1)
    _, after = defined({name: value[0] for name, value in values.items()}, both, True)
    np.testing.assert_allclose(moved["layers_norms.1.variance"][0], after["layers_norms.1.variance"], rtol=1e-3)


# ------------------------------------------------------------------------------------------------ refusals
def test_two_heads_do_not_share_a_stacks_name_silently():
    """Neither on one torso nor on one each: the parameters' names are the stacks'."""
    for shared in (True, False):
        with pytest.raises(
            ValueError,
            match=r"^Two stacks of these heads share a name: layers, layers",
        ):
            NetworkSpec(Torso(VECTOR), (DeterministicHead(2, (8,)), SquashedGaussianHead(2, (8,))), shared=shared)
    NetworkSpec(Torso(VECTOR), (DeterministicHead(2, (8,)), PolicyHead(ACTION), StateValueHead()))


def test_one_observation_alone_is_a_row(backend):
    """As while acting."""
    spec = NetworkSpec(Torso(box(1)), DeterministicHead(1, (4,), blocks="batch_renorm"))
    assert call(backend, built(backend, spec, away(spec)), np.ones((1, 1), np.float32)).shape == (1, 1)
