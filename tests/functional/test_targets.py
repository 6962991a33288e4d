import numpy as np
import pytest

from duetto.functional.targets import bootstrap, smoothed_action

GAMMA = 0.99


def first(action):
    return 10 + 2 * action


def second(action):
    return 12 - action


# SPEC O7. Q1'(a) = 10 + 2a, Q2'(a) = 12 - a, r = 1; the noise is given as it is, so its std is 1.
@pytest.mark.parametrize(
    ("policy", "noise", "discount", "action", "target"),
    [
        (0.3, 0.7, GAMMA, 0.8, 12.088),  # .7 → .5; a' .8; Q 11.6 and 11.2; 1 + .99·11.2
        (0.9, 0.4, GAMMA, 1.0, 11.89),  # .9 + .4 = 1.3 → 1; Q 12 and 11; 1 + .99·11
        (-0.8, -0.9, GAMMA, -1.0, 8.92),  # -.9 → -.5; -1.3 → -1; Q 8 and 13; 1 + .99·8
        (0.3, 0.7, 0.0, 0.8, 1.0),  # terminated: the reward alone
    ],
)
def test_o7_target(array, policy, noise, discount, action, target):
    smoothed = smoothed_action(array([[policy]]), array([[noise]]), 1.0, -0.5, 0.5)
    np.testing.assert_allclose(smoothed, [[action]], rtol=1e-6)
    lower = array(np.minimum(first(np.asarray(smoothed)), second(np.asarray(smoothed)))[:, 0])
    np.testing.assert_allclose(bootstrap(array([1.0]), array([discount]), lower), [target], rtol=1e-6)


@pytest.mark.parametrize(
    ("noise", "std", "bounds", "expected"),
    [
        ([[2.0, 5.0]], 0.2, (-0.5, 0.5), [[0.4, 0.5]]),  # the std scales before the clip: .2 · 5 = 1 is outside
        ([[0.9, -0.9]], 1.0, (-0.1, 0.3), [[0.3, -0.1]]),
        ([[0.9, -0.9]], 1.0, (-np.inf, np.inf), [[0.9, -0.9]]),
        ([[0.1, 0.2], [0.3, 0.4]], 1.0, (-0.5, 0.5), [[0.1, 0.2], [0.3, 0.4]]),  # no row is copied over another
    ],
)
def test_noise_is_scaled_and_clipped(array, noise, std, bounds, expected):
    smoothed = smoothed_action(array(np.zeros_like(noise)), array(noise), std, *bounds)
    np.testing.assert_allclose(smoothed, expected, rtol=1e-6)


def test_c14_a_column_does_not_meet_a_row(array):
    row, column = array([1.0, 2.0]), array([[1.0], [2.0]])
    for arguments in ((column, row, row), (row, column, row), (row, row, column)):
        with pytest.raises(ValueError, match=r"\(2, 1\)"):
            bootstrap(*arguments)


def test_one_noise_value_for_each_row_is_refused(array):
    with pytest.raises(ValueError, match=r"noise \(3, 1\)"):
        smoothed_action(array(np.zeros((3, 2))), array(np.zeros((3, 1))), 0.2, -0.5, 0.5)
