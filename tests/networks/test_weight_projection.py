"""Weights of unit norm and normalized blocks, by hand and on all frameworks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from duetto.networks import numpy_layers
from duetto.networks.layers import Stack, StackArrays, projected


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
