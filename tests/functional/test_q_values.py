"""Action values: SPEC O15, and Huber's loss."""

import numpy as np
import pytest

from duetto.functional.q_values import dueling, huber, value_of_action


def test_o15_dueling():
    np.testing.assert_allclose(dueling(np.array([[1.0]]), np.array([[1.0, 2, 3]])), [[0, 1, 2]])


def test_chosen():
    q = np.array([[1.0, 5, 3], [10, 2, 7]])
    np.testing.assert_array_equal(value_of_action(q, np.array([2, 0])), [3, 10])
    with pytest.raises(ValueError, match=r"q has shape \(2, 3\), action \(2, 1\)"):
        value_of_action(q, np.array([[2], [0]]))


def test_huber():
    """δ = 1: e²/2 to 1, then |e| - 1/2; δ = 0 is the square."""
    error = np.array([-3.0, -1, 0.5, 2])
    np.testing.assert_allclose(huber(error, 1.0), [2.5, 0.5, 0.125, 1.5])
    np.testing.assert_allclose(huber(error, 0.0), error**2)
