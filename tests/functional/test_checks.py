import pytest

from duetto.functional.checks import same_shape


def test_equal_shapes_pass(array):
    same_shape(one=array([[1.0]]), other=array([[2.0]]))


def test_c14_the_message_shows_every_shape(array):
    with pytest.raises(ValueError, match=r"q \(2,\), target \(2, 1\), weight \(2,\)"):
        same_shape(q=array([1.0, 2.0]), target=array([[1.0], [2.0]]), weight=array([1.0, 1.0]))
