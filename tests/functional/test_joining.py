"""Two batches as one, whatever tree they are."""

import numpy as np

from duetto.functional.array_ops import concat
from duetto.networks.sequence_input import SequenceInput


def test_rows_of_one_come_before_those_of_the_other(array):
    found = concat(array([[1, 2]]), array([[3, 4], [5, 6]]))
    assert type(found) is type(array([1]))
    np.testing.assert_array_equal(found, [[1, 2], [3, 4], [5, 6]])


def test_every_array_of_a_tree(array):
    one, other = ({"a": array([k]), "b": (array([[k]]), None)} for k in (1, 2))
    found = concat(one, other)
    np.testing.assert_array_equal(found["a"], [1, 2])
    np.testing.assert_array_equal(found["b"][0], [[1], [2]])
    assert found["b"][1] is None
    window = SequenceInput(
        array([[1]]), array([[2]]), array([[3]]), array([[0]]), {"h": array([[4]])}, array([1]), None
    )
    both = concat(window, window._replace(query_steps=None, obs=array([[7]])))
    assert isinstance(both, SequenceInput)
    np.testing.assert_array_equal(both.obs, [[1], [7]])
    np.testing.assert_array_equal(both.carry["h"], [[4], [4]])
