import numpy as np
import pytest

from duetto.functional.priorities import annealed_exponent, importance_weights, mass

PRIORITY = np.array([1.0, 2.0, 3.0, 4.0])


@pytest.mark.parametrize(
    ("exponent", "expected"),
    [
        (0.6, [0.1482295026, 0.2246739128, 0.286554613, 0.3405419716]),
        (0.9, [0.1106666785, 0.2065113241, 0.2974582404, 0.3853637571]),
        (0.0, [0.25, 0.25, 0.25, 0.25]),
    ],
)
def test_o10_probabilities(exponent, expected):
    masses = mass(PRIORITY, exponent)
    np.testing.assert_allclose(masses / masses.sum(), expected, rtol=1e-8)


@pytest.mark.parametrize(
    ("alpha", "beta", "expected"),
    [
        (0.6, 0.4, [1, 0.8467453124, 0.7682293564, 0.716977624]),
        (0.9, 0.6, [1, 0.6877709091, 0.5525282941, 0.4730288234]),
        (0.6, 0.0, [1, 1, 1, 1]),
    ],
)
def test_o10_weights(alpha, beta, expected):
    masses = mass(PRIORITY, alpha)
    np.testing.assert_allclose(importance_weights(masses, masses.min(), beta), expected, rtol=1e-8)


def test_o10_weights_over_the_batch():
    batch = mass(PRIORITY, 0.9)[2:4]
    np.testing.assert_allclose(importance_weights(batch, batch.min(), 0.6), [1, 0.8561169236], rtol=1e-8)


def test_weights_are_the_papers():
    """(N · P)^-β over its largest value: N and the sum cancel."""
    masses = mass(PRIORITY, 0.6)
    paper = (4 * masses / masses.sum()) ** -0.4
    np.testing.assert_allclose(importance_weights(masses, masses.min(), 0.4), paper / paper.max(), rtol=1e-12)


def test_o10_annealing():
    """Without it the exponent is constant."""
    found = [annealed_exponent(0.4, sampled, 100_000) for sampled in (0, 50_000, 100_000, 300_000)]
    np.testing.assert_allclose(found, [0.4, 0.7, 1.0, 1.0])
    assert annealed_exponent(0.4, 10**9, 0) == 0.4
