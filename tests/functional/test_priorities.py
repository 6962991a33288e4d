import numpy as np
import pytest

from duetto.functional.priorities import annealed_exponent, importance_weights, mass

PRIORITY = np.array([1.0, 2.0, 3.0, 4.0])


@pytest.mark.parametrize(
    ("exponent", "expected"),
    [
        (0.6, [0.1482295026, 0.2246739128, 0.286554613, 0.3405419716]),
        (0.9, [0.1106666785, 0.2065113241, 0.2974582404, 0.3853637571]),
    ],
)
def test_sampling_probabilities_by_hand_o10(exponent, expected):
    masses = mass(PRIORITY, exponent)
    np.testing.assert_allclose(masses / masses.sum(), expected, rtol=1e-8)


@pytest.mark.parametrize(
    ("alpha", "beta", "expected"),
    [
        (0.6, 0.4, [1, 0.8467453124, 0.7682293564, 0.716977624]),
        (0.9, 0.6, [1, 0.6877709091, 0.5525282941, 0.4730288234]),
    ],
)
def test_importance_weights_by_hand_o10(alpha, beta, expected):
    masses = mass(PRIORITY, alpha)
    np.testing.assert_allclose(importance_weights(masses, masses.min(), beta), expected, rtol=1e-8)


def test_importance_exponent_annealing_o10():
    """The exponent is constant if the annealing takes 0 samples."""
    found = [annealed_exponent(0.4, sampled, 100_000) for sampled in (0, 50_000, 100_000, 300_000)]
    np.testing.assert_allclose(found, [0.4, 0.7, 1.0, 1.0])
    assert annealed_exponent(0.4, 10**9, 0) == 0.4
