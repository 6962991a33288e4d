"""Categorical value distributions by hand: projection, cross-entropy, means, and the lowest critic."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from duetto.functional import categorical
from duetto.functional.array_ops import scatter_add

MAKERS: dict[str, Any] = {"numpy": np.asarray, "torch": torch.as_tensor, "jax": jnp.asarray}
P = np.array([[0.2, 0.5, 0.3]], np.float32)
ATOMS = np.array([-1, 0, 1], np.float32)


@pytest.fixture(params=MAKERS)
def make(request: pytest.FixtureRequest):
    return lambda *numbers: MAKERS[request.param](np.array(numbers, np.float32))


def projected(make: Any, reward: float, discount: float, entropy_cost: float) -> np.ndarray:
    row = [make(number) for number in (reward, discount, entropy_cost)]
    return np.asarray(categorical.project(make(*P), categorical.shifted_atoms(*row, make(*ATOMS)), -1.0, 1.0))


@pytest.mark.parametrize(
    ("reward", "discount", "entropy_cost", "expected"),
    [
        (0.3, 0.5, -0.2, [0.02, 0.51, 0.47]),  # y = -.1, .4, .9
        (0.3, 0.0, -0.2, [0.0, 0.7, 0.3]),  # terminated
        (0.8, 0.5, 0.0, [0.0, 0.24, 0.76]),  # y = .3, .8 and 1.3, which is clipped
        (5.0, 0.5, 0.0, [0.0, 0.0, 1.0]),  # all mass moves to the last atom
        (0.0, 1.0, 0.0, P[0]),  # on the atoms
    ],
)
def test_projection_by_hand(make: Any, reward: float, discount: float, entropy_cost: float, expected: Any):
    """Atoms -1, 0, 1, probabilities .2, .5, .3."""
    np.testing.assert_allclose(projected(make, reward, discount, entropy_cost), [expected], atol=1e-6)


def test_projection_keeps_mass_and_mean(make: Any):
    """With 101 atoms from -5 to 5 and returns in this range."""
    random = np.random.default_rng(0)
    p = random.dirichlet(np.ones(101), (2, 7))
    returns = random.uniform(-5, 5, (2, 7, 101))
    m = np.asarray(categorical.project(make(*p), make(*returns), -5.0, 5.0), np.float64)
    np.testing.assert_allclose(m.sum(-1), 1, rtol=1e-5)
    np.testing.assert_allclose(m @ np.linspace(-5, 5, 101), (p * returns).sum(-1), atol=1e-4)


def test_shapes_that_would_broadcast_are_refused(make: Any):
    with pytest.raises(ValueError, match=r"reward \(2,\), discount \(2, 1\)"):
        categorical.shifted_atoms(make(1, 2), make([1], [2]), make(1, 2), make(*ATOMS))
    with pytest.raises(ValueError, match="equal shapes"):
        categorical.project(make(*P), make(*ATOMS), -1.0, 1.0)
    with pytest.raises(ValueError, match="equal shapes"):
        categorical.cross_entropy(make(*ATOMS), make(*P))


def test_cross_entropy_by_hand():
    """-Σ p log q of p = (.02, .51, .47), q = (.1, .6, .3) is .0461 + .2605 + .5659. Its gradient is q - p."""
    target, logits = (np.array(row, np.float32) for row in ([0.02, 0.51, 0.47], np.log([0.1, 0.6, 0.3])))
    ours = torch.tensor(logits, requires_grad=True)
    loss = categorical.cross_entropy(torch.tensor(target), ours)
    loss.backward()
    theirs = jax.grad(lambda x: categorical.cross_entropy(jnp.asarray(target), x))(jnp.asarray(logits))
    assert loss.item() == pytest.approx(0.8724, abs=1e-4)
    for gradient in (ours.grad, theirs):
        np.testing.assert_allclose(np.asarray(gradient), [0.08, 0.09, -0.17], atol=1e-6)


def test_mean_value_by_hand(make: Any):
    logits = make(np.log([0.2, 0.5, 0.3]) + 1000, np.log([0.5, 0.25, 0.25]) - 1000)  # softmax ignores a constant offset
    np.testing.assert_allclose(np.asarray(categorical.mean_value(logits, -1.0, 1.0)), [0.1, -0.25], atol=1e-4)
    np.testing.assert_allclose(
        np.asarray(categorical.atom_values(make(*np.zeros(5)), -5.0, 5.0)), [-5, -2.5, 0, 2.5, 5]
    )


def test_lowest_critic_selects_whole_distribution_per_row(make: Any):
    """Means .1 and 0 select (.5, 0, .5), not an elementwise minimum: critic 2 in row 1, critic 1 in row 2."""
    one, other = np.log([0.2, 0.5, 0.3]), np.log([0.5, 1e-12, 0.5])
    chosen = categorical.lowest_critic(make([one, other], [other, one]), -1.0, 1.0)
    np.testing.assert_allclose(np.asarray(chosen), [[0.5, 0, 0.5]] * 2, atol=1e-6)


def test_scatter_add_sums_values_per_row(make: Any):
    index = np.asarray(make([0, 0, 2], [1, 1, 1])).astype(np.int32)
    kind = {"Tensor": torch.as_tensor, "ndarray": np.asarray}.get(type(make(1)).__name__, jnp.asarray)
    found = scatter_add(kind(index), make([1, 2, 3], [4, 5, 6]))
    assert np.asarray(found).tolist() == [[3, 0, 3], [0, 15, 0]]
