"""JAX layers in bfloat16: results equal rounded float32 products; dtypes of matrix products."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from duetto.networks import jax_bfloat16, jax_layers, layers

SHAPES = [((5, 7), (3, 7)), ((4, 5, 7), (3, 7)), ((2, 5, 7), (2, 3, 7)), ((5, 7), (2, 3, 7))]


@pytest.fixture(params=["bf16", "f32"])
def factor_dtype(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the dtype of matrix products on a processor with bfloat16 instructions, and on one without."""
    monkeypatch.setattr(jax_bfloat16, "multiplies_bfloat16", lambda: request.param == "bf16")
    jax.clear_caches()  # drop programs traced for the other dtype
    return request.param


def rounded_product(first: Array, second: Array, sums: str) -> Array:
    return jnp.einsum(sums, first.astype(jnp.float32), second.astype(jnp.float32)).astype(jnp.bfloat16)


def exact_numbers(*shape: int, seed: int = 0) -> Array:
    """Return numbers whose products and sums are exact in float32, in any order, but not in bfloat16."""
    return jnp.asarray(np.random.default_rng(seed).integers(-99, 99, shape) / 8, jnp.bfloat16)


def equal(ours: Array, expected: Array) -> None:
    assert ours.dtype == expected.dtype == jnp.bfloat16
    np.testing.assert_array_equal(ours.astype(jnp.float32), expected.astype(jnp.float32))


@pytest.mark.usefixtures("factor_dtype")
@pytest.mark.parametrize(("x", "weight"), SHAPES)
def test_bfloat16_linear_equals_rounded_float32(x: tuple[int, ...], weight: tuple[int, ...]):
    inputs, weights, biases = exact_numbers(*x), exact_numbers(*weight, seed=1), exact_numbers(*weight[:-1], seed=2)
    result, back = jax.vjp(jax_layers.linear, inputs, weights, biases)
    gradient = exact_numbers(*result.shape, seed=3)
    of_x, of_weight, of_bias = back(gradient)
    if len(weight) == 3:
        wide = jnp.broadcast_to(inputs, (2, *inputs.shape[-2:]))
        equal(result, rounded_product(wide, weights, "nbi,noi->nbo") + biases[:, None])
        each = rounded_product(gradient, weights, "nbo,noi->nbi")
        equal(of_x, each if len(x) == 3 else jnp.sum(each, 0))
        equal(of_weight, rounded_product(gradient, wide, "nbo,nbi->noi"))
        equal(of_bias, jnp.sum(gradient.astype(jnp.float32), 1).astype(jnp.bfloat16))
    else:
        equal(
            result, rounded_product(inputs, weights, "...i,oi->...o") + jnp.reshape(biases, (*(1,) * (len(x) - 1), -1))
        )
        equal(of_x, rounded_product(gradient, weights, "...o,oi->...i"))
        rows, turned = jnp.reshape(inputs, (-1, 7)), jnp.reshape(gradient, (-1, 3))
        equal(of_weight, rounded_product(turned, rows, "bo,bi->oi"))
        equal(of_bias, jnp.sum(turned.astype(jnp.float32), 0).astype(jnp.bfloat16))


@pytest.mark.parametrize("weight", [(48, 32), (2, 48, 32)])
def test_matrix_products_use_dtype_of_processor(weight: tuple[int, ...], factor_dtype: str):
    """XLA passes products of bfloat16 factors with a float32 result to a library unchanged."""
    x, weights, biases = exact_numbers(64, 32), exact_numbers(*weight), exact_numbers(*weight[:-1])

    def loss(x: Array, weight: Array, bias: Array) -> Array:
        return jnp.sum(jax_layers.linear(x, weight, bias).astype(jnp.float32))

    text = jax.jit(jax.grad(loss, argnums=(0, 1, 2))).lower(x, weights, biases).as_text()
    products = re.findall(r"dot_general.*: \((.*)\) -> (.*?)( loc|\n)", text)
    assert len(products) == 3  # gradients of x, weights and biases; the layer's output is unused
    for factors, result, _ in products:
        assert re.findall("bf16|f32", factors) == [factor_dtype, factor_dtype]
        assert re.findall("bf16|f32", result) == ["f32"]


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_bfloat16_recurrent_layer_is_close_to_float32(kind: str):
    """The products with the hidden state are float32, so errors do not grow with the steps."""
    gates, rng = {"lstm": 4, "gru": 3}[kind], np.random.default_rng(0)
    starts = jnp.asarray(rng.random((40, 8)) < 0.1)
    state = tuple(jnp.asarray(rng.normal(size=(8, 16)), jnp.float32) for _ in range({"lstm": 2, "gru": 1}[kind]))
    entering, weight, bias = (
        jnp.asarray(rng.normal(size=shape) * scale, jnp.bfloat16)
        for shape, scale in (((40, 8, gates * 16), 1), ((gates * 16, 16), 0.3), ((gates * 16,), 0.3))
    )
    wanted = jnp.asarray(rng.normal(size=(40, 8, 16)), jnp.float32)

    def loss(entering: Array, weight: Array, bias: Array) -> tuple[Array, tuple[Array, ...]]:
        outputs, last = jax_layers.unroll(layers.CELLS[kind], entering, starts, state, weight, bias)
        return jnp.sum(outputs * wanted) + sum(jnp.sum(part) for part in last), (outputs, *last)

    learn = jax.jit(jax.grad(loss, argnums=(0, 1, 2), has_aux=True))
    gradients, values = learn(entering, weight, bias)
    assert [part.dtype for part in (*gradients, *values)] == [jnp.bfloat16] * 3 + [jnp.float32] * len(values)
    exact_gradients, exact_values = learn(*(part.astype(jnp.float32) for part in (entering, weight, bias)))
    for ours, exact in zip((*gradients, *values), (*exact_gradients, *exact_values), strict=True):
        error = jnp.linalg.norm(ours.astype(jnp.float32) - exact) / jnp.linalg.norm(exact)
        assert error < 2**-7  # bfloat16 has 8 significant bits
