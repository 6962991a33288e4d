"""SPEC O1: R2D2's value scale."""

import numpy as np
import pytest

from duetto.functional.rescaling import rescale, seen_reward, unrescale

SMALL = [(-300, -16.6493515729), (-10, -2.3266247904), (-1, -0.4152135624), (0, 0), (0.5, 0.2252448714), (3, 1.003)]
SMALL += [(100, 9.1498756211), (1000, 31.6385840391), (1e6, 1999.0004999999)]
LARGE = [(-300, -19.3493515729), (1, 0.4242135624), (3, 1.03), (10, 2.4166247904), (1000, 40.6385840391)]


@pytest.mark.parametrize(("epsilon", "pairs"), [(1e-3, SMALL), (1e-2, LARGE)])
def test_o1(epsilon, pairs):
    x, h = np.array(pairs, np.float64).T
    np.testing.assert_allclose(rescale(x, epsilon), h, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(unrescale(rescale(x, epsilon), epsilon), x, rtol=1e-9, atol=1e-9)


def test_o1_inverse():
    np.testing.assert_allclose(
        unrescale(np.array([-2.0, 0.5, 1, 2, 10]), 1e-3),
        [-7.9523491450, 1.2462627649, 2.9880567017, 7.9523491450, 117.4303227796],
        rtol=1e-9,
    )
    np.testing.assert_allclose(
        unrescale(np.array([0.5, 1, 2, 10]), 1e-2),
        [1.2137352576, 2.8854159255, 7.5525510403, 99.1667245290],
        rtol=1e-9,
    )


def test_o1_float32_does_not_cancel():
    """The textbook's inverse is 4.7e-5 off at 0.001, 5 % of it; this one less than 1e-6 times max(1, |x|)."""
    x = np.array([0.001, 0.01, 0.1, 1, 10, 100, 1000], np.float32)
    back = unrescale(rescale(x, 1e-3), 1e-3)
    assert back.dtype == np.float32
    assert (np.abs(back - x) < 1e-6 * np.maximum(1, x)).all()


@pytest.mark.parametrize(
    ("kind", "seen"), [("raw", [-3, 0, 0.5]), ("sign", [-1, 0, 1]), ("tanh", [-0.9950548, 0, 0.4621172])]
)
def test_seen_rewards(kind, seen):
    np.testing.assert_allclose(seen_reward(kind, np.array([-3, 0, 0.5])), seen, atol=1e-7)
