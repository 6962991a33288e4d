"""Layers of bfloat16 in JAX: the numbers of float32 products that are rounded, and products a processor knows."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from duetto.networks import jax_bfloat16, jax_layers

SHAPES = [((5, 7), (3, 7)), ((4, 5, 7), (3, 7)), ((2, 5, 7), (2, 3, 7)), ((5, 7), (2, 3, 7))]


@pytest.fixture(params=["bf16", "f32"])
def factors_in(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What products are handed on in, by a processor that has instructions for bfloat16 and by one that has none."""
    monkeypatch.setattr(jax_bfloat16, "multiplies_bfloat16", lambda: request.param == "bf16")
    jax.clear_caches()  # of what was traced for the other
    return request.param


def rounded(first: Array, second: Array, sums: str) -> Array:
    return jnp.einsum(sums, first.astype(jnp.float32), second.astype(jnp.float32)).astype(jnp.bfloat16)


def numbers(*shape: int, seed: int = 0) -> Array:
    """Whose products and sums are exact in float32, in any order, and not in bfloat16."""
    return jnp.asarray(np.random.default_rng(seed).integers(-99, 99, shape) / 8, jnp.bfloat16)


def equal(ours: Array, expected: Array) -> None:
    assert ours.dtype == expected.dtype == jnp.bfloat16
    np.testing.assert_array_equal(ours.astype(jnp.float32), expected.astype(jnp.float32))


@pytest.mark.usefixtures("factors_in")
@pytest.mark.parametrize(("x", "weight"), SHAPES)
def test_values_and_derivatives_are_those_of_float32_rounded(x: tuple[int, ...], weight: tuple[int, ...]):
    inputs, weights, biases = numbers(*x), numbers(*weight, seed=1), numbers(*weight[:-1], seed=2)
    result, back = jax.vjp(jax_layers.linear, inputs, weights, biases)
    gradient = numbers(*result.shape, seed=3)
    of_x, of_weight, of_bias = back(gradient)
    if len(weight) == 3:
        wide = jnp.broadcast_to(inputs, (2, *inputs.shape[-2:]))
        equal(result, rounded(wide, weights, "nbi,noi->nbo") + biases[:, None])
        each = rounded(gradient, weights, "nbo,noi->nbi")
        equal(of_x, each if len(x) == 3 else jnp.sum(each, 0))
        equal(of_weight, rounded(gradient, wide, "nbo,nbi->noi"))
        equal(of_bias, jnp.sum(gradient.astype(jnp.float32), 1).astype(jnp.bfloat16))
    else:
        equal(result, rounded(inputs, weights, "...i,oi->...o") + jnp.reshape(biases, (*(1,) * (len(x) - 1), -1)))
        equal(of_x, rounded(gradient, weights, "...o,oi->...i"))
        rows, turned = jnp.reshape(inputs, (-1, 7)), jnp.reshape(gradient, (-1, 3))
        equal(of_weight, rounded(turned, rows, "bo,bi->oi"))
        equal(of_bias, jnp.sum(turned.astype(jnp.float32), 0).astype(jnp.bfloat16))


def test_side_by_side_is_each_alone():
    """As many seeds are, under vmap."""
    x, weight, bias = numbers(4, 5, 7), numbers(4, 2, 3, 7, seed=1), numbers(4, 2, 3, seed=2)

    def learn(x: Array, weight: Array, bias: Array) -> Array:
        return jax.grad(lambda w: jnp.sum(jax_layers.linear(x, w, bias).astype(jnp.float32) ** 2))(weight)

    for seed, ours in enumerate(jax.vmap(learn)(x, weight, bias)):
        equal(ours, learn(x[seed], weight[seed], bias[seed]))


@pytest.mark.parametrize("weight", [(48, 32), (2, 48, 32)])
def test_every_product_of_an_update_is_handed_on_as_the_processor_wants_it(weight: tuple[int, ...], factors_in: str):
    """Of bfloat16, with a result in float32, is what XLA gives to a library as it is."""
    x, weights, biases = numbers(64, 32), numbers(*weight), numbers(*weight[:-1])

    def loss(x: Array, weight: Array, bias: Array) -> Array:
        return jnp.sum(jax_layers.linear(x, weight, bias).astype(jnp.float32))

    text = jax.jit(jax.grad(loss, argnums=(0, 1, 2))).lower(x, weights, biases).as_text()
    products = re.findall(r"dot_general.*: \((.*)\) -> (.*?)( loc|\n)", text)
    assert len(products) == 3  # of x, of the weights and of the biases: the layer's own result is not asked for
    for factors, result, _ in products:
        assert re.findall("bf16|f32", factors) == [factors_in, factors_in]
        assert re.findall("bf16|f32", result) == ["f32"]


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_a_recurrent_layer_comes_near_float32(kind: str, factors_in: str):
    """Products of rounded numbers; what is added up over steps is float32, so errors do not grow with them."""
    gates, rng = {"lstm": 4, "gru": 3}[kind], np.random.default_rng(0)
    starts = jnp.asarray(rng.random((40, 8)) < 0.1)
    state = tuple(jnp.asarray(rng.normal(size=(8, 16)), jnp.float32) for _ in range({"lstm": 2, "gru": 1}[kind]))
    entering, weight, bias = (
        jnp.asarray(rng.normal(size=shape) * scale, jnp.bfloat16)
        for shape, scale in (((40, 8, gates * 16), 1), ((gates * 16, 16), 0.3), ((gates * 16,), 0.3))
    )
    wanted = jnp.asarray(rng.normal(size=(40, 8, 16)), jnp.float32)

    def loss(entering: Array, weight: Array, bias: Array) -> tuple[Array, tuple[Array, ...]]:
        outputs, last = jax_layers.unroll(jax_layers.CELLS[kind], entering, starts, state, weight, bias)
        return jnp.sum(outputs * wanted) + sum(jnp.sum(part) for part in last), (outputs, *last)

    learn = jax.jit(jax.grad(loss, argnums=(0, 1, 2), has_aux=True))
    gradients, values = learn(entering, weight, bias)
    assert [part.dtype for part in (*gradients, *values)] == [jnp.bfloat16] * 3 + [jnp.float32] * len(values)
    exact_gradients, exact_values = learn(*(part.astype(jnp.float32) for part in (entering, weight, bias)))
    for ours, exact in zip((*gradients, *values), (*exact_gradients, *exact_values), strict=True):
        error = jnp.linalg.norm(ours.astype(jnp.float32) - exact) / jnp.linalg.norm(exact)
        assert 0 < error < 2**-7  # bfloat16 has 8 bits

    products = re.findall(r"dot_general.*: \((.*)\) -> (.*?)(?: loc|\n)", learn.lower(entering, weight, bias).as_text())
    assert len(products) == 4  # a step forwards and back, the weights' and the biases' derivative
    for factors, result in products:
        assert re.findall("bf16|f32", f"{factors} {result}") == [factors_in, factors_in, "f32"]
