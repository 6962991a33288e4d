"""Trees keep their form: names in order, plain tuples, named tuples and None."""

from typing import Any, NamedTuple

import numpy as np
import pytest

from duetto.functional.trees import leaves, mapped, merged


class Pair(NamedTuple):
    first: Any
    second: Any


def test_every_leaf_is_mapped():
    tree = {"b": 1, "a": (2, [3], Pair(4, {"c": None})), "none": (), "empty": {}}
    found = mapped(str, tree)
    assert found == {"b": "1", "a": ("2", "[3]", Pair("4", {"c": None})), "none": (), "empty": {}}
    assert list(found) == ["b", "a", "none", "empty"]
    assert type(found["a"]) is tuple
    assert type(found["a"][2]) is Pair


def test_a_single_leaf_is_a_tree(array):
    np.testing.assert_array_equal(mapped(lambda x: x + 1, array([1, 2])), [2, 3])
    assert mapped(str, 0) == "0"
    assert mapped(str, None) is None


def test_tuples_of_a_kind_may_be_leaves():
    tree = (Pair(1, 2), (3, {"a": Pair(4, 5)}))
    assert mapped(lambda one: sum(one) if isinstance(one, Pair) else one, tree, leaf=Pair) == (3, (3, {"a": 9}))


def test_arrays_at_the_same_place_are_merged():
    trees = [{"b": np.array([k]), "a": (None, Pair(np.array([[k]]), np.float32(k)))} for k in (1, 2, 3)]
    found = merged(np.stack, trees)
    assert list(found) == ["b", "a"]
    np.testing.assert_array_equal(found["b"], [[1], [2], [3]])
    none, pair = found["a"]
    assert none is None
    assert type(pair) is Pair
    np.testing.assert_array_equal(pair.first, [[[1]], [[2]], [[3]]])
    np.testing.assert_array_equal(pair.second, [1, 2, 3])
    np.testing.assert_array_equal(merged(np.concatenate, [np.array([1]), np.array([2, 3])]), [1, 2, 3])


def test_the_first_tree_decides_what_is_merged():
    assert merged(list, [{"a": 1, "b": None}, {"b": 2, "a": 3, "c": 4}]) == {"a": [1, 3], "b": None}
    with pytest.raises(KeyError):
        merged(list, [{"a": 1}, {}])
    with pytest.raises(ValueError, match="shorter"):
        merged(list, [(1, 2), (1,)])


def test_leaves_are_in_order():
    assert leaves({"b": 1, "a": (2, None, Pair({"d": 3, "c": 4}, [5]))}) == [1, 2, 3, 4, [5]]
    assert leaves(7) == [7]
    assert leaves(None) == []
